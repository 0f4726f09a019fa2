"""Files of parked rows, kept from the vacuum of their table: a second name for each, in the folder of the queue.

The couriers pin a file before they park the delivery that names it, and release it after the delivery is taken away. Workers
read it. A file that is lost cannot be delivered; its queue then waits, and says why, until someone waives it."""

import os
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from millrace.atomic import replace_file, replacing
from millrace.exchange.home import Home
from millrace.model.queues import QueueKey

COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Pins:
    home: Home
    key: QueueKey

    @property
    def folder(self) -> Path:
        return self.home.queue(*self.key)

    def path(self, part: str) -> Path:
        return self.folder / part.replace("/", "+")

    def pin(self, source: Path, part: str) -> int:
        """The size of the file."""
        target = self.path(part)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                _link_or_copy(source, target)
        return target.stat().st_size

    def restore(self, part: str, target: Path) -> None:
        """Gives the file its first name again, if that is gone."""
        pinned = self.path(part)
        if not target.exists() and pinned.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            _link_or_copy(pinned, target)

    def write(self, part: str, content: bytes) -> None:
        replace_file(self.path(part), content)

    def release(self, parts: Iterable[str] | None) -> None:
        """None: all of them, also those that a killed process left behind."""
        for path in self.folder.glob("*") if parts is None else map(self.path, parts):
            path.unlink(missing_ok=True)

    def drop(self, older_than_seconds: float) -> None:
        """For the server. Younger pins stay: a courier pins a file before it parks the delivery."""
        latest = time.time() - older_than_seconds
        for path in self.folder.glob("*"):
            with suppress(FileNotFoundError):
                # The moment of the link; the file may have been written long before.
                if path.stat().st_ctime <= latest:
                    path.unlink()
        with suppress(OSError):
            self.folder.rmdir()


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        pass
    except FileNotFoundError:
        raise
    except OSError:
        # This file system knows no second names, or it is another one.
        with source.open("rb") as original, replacing(target) as copy:
            shutil.copyfileobj(original, copy, COPY_BYTES)
