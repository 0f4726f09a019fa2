"""The history of one process: a line before each request, on disk before it leaves, and a line for what became of it.

ok: done. fail: surely not done. info: nobody knows; a process that does not know ends, and another goes on."""

import hashlib
import itertools
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

OK, FAIL, INFO = "ok", "fail", "info"
_numbers = itertools.count(1)
_numbering = threading.Lock()


def next_process() -> int:
    with _numbering:
        return next(_numbers)


class History:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._begin()

    def _begin(self) -> None:
        self.proc = next_process()
        self._idx = 0
        self._file = (self._folder / f"{self.proc:05d}.jsonl").open("a", buffering=1)

    def invoke(self, f: str, **said: Any) -> dict[str, Any]:
        """What is about to be asked; the line to complete with `done`."""
        self._idx += 1
        line = {"proc": self.proc, "idx": self._idx, "f": f, **said}
        self._write({**line, "type": "invoke", "result": None})
        os.fsync(self._file.fileno())
        return line

    def done(self, line: dict[str, Any], kind: str, result: dict[str, Any], seen: list[str]) -> None:
        self._write({**line, "type": kind, "result": result, "seen": seen})
        if kind == INFO:
            self._file.close()
            self._begin()

    def close(self) -> None:
        self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        stamped = {**line, "t_mono": time.monotonic(), "t_wall": time.time()}
        self._file.write(json.dumps(stamped) + "\n")


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]
