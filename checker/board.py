"""What the threads of a run share: files under way, ends that were heard, and the lines they add to the dump."""

import json
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any


class Lines:
    """A JSON Lines file that several threads append to."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._lock = threading.Lock()

    def add(self, document: dict[str, Any]) -> None:
        line = json.dumps(document) + "\n"
        with self._lock, self._path.open("a") as file:
            file.write(line)


class Board:
    """A file is open from its first request until the end of its import is heard. `broken`: tables that are damaged now.
    `peace`: whoever holds it wants no process to be killed or paused meanwhile. Whoever holds a table's `hand` is the only
    one of the checker who writes the table's folder."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, str | None] = {}
        self._ended: set[str] = set()
        self._rows = 0
        self._files = 0
        self.last_end = time.monotonic()
        self.stop = threading.Event()
        self.broken: set[tuple[str, str]] = set()
        self.peace = threading.Lock()
        self._hands: dict[tuple[str, str], threading.Lock] = defaultdict(threading.Lock)

    def hand(self, place: tuple[str, str]) -> threading.Lock:
        with self._lock:
            return self._hands[place]

    def next_file(self) -> int:
        with self._lock:
            self._files += 1
            return self._files

    def opened(self, file: int, rows: int) -> None:
        with self._lock:
            self._open[file] = None
            self._rows += rows

    def admitted(self, file: int, import_id: str) -> None:
        with self._lock:
            if import_id in self._ended:
                self._open.pop(file, None)
            elif file in self._open:
                self._open[file] = import_id

    def refused(self, file: int) -> None:
        with self._lock:
            self._open.pop(file, None)

    def ended(self, import_id: str) -> None:
        with self._lock:
            self._ended.add(import_id)
            self.last_end = time.monotonic()
            for file in [file for file, admitted in self._open.items() if admitted == import_id]:
                del self._open[file]

    def has_ended(self, import_id: str) -> bool:
        with self._lock:
            return import_id in self._ended

    def open_imports(self) -> list[str]:
        """Imports that were admitted and have not ended, as far as this side knows."""
        with self._lock:
            return [import_id for import_id in self._open.values() if import_id is not None]

    @property
    def figures(self) -> dict[str, int]:
        with self._lock:
            return {"files": self._files, "rows": self._rows, "open": len(self._open), "ended": len(self._ended)}
