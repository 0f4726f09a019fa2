"""Output of a running program in, log files of bounded size out: the newest under its name, older ones numbered.

With a seal they are sealed piece by piece, as they come."""

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from millrace.atomic import replacing
from millrace.beneath.folder import Folder, enter, is_plain
from millrace.beneath.trees import remove
from millrace.manage.claiming import safe_name
from millrace.model.names import new_id
from millrace.seal.cipher import Seal
from millrace.staging.sealed import frame, head, log_part

LOG_BYTES = 4 << 20
KEPT = 3
PIECE_BYTES = 1 << 16


class RotatedLog:
    def __init__(self, path: Path, most_bytes: int = LOG_BYTES, seal: Seal | None = None) -> None:
        self._path = path
        self._most = most_bytes
        self._seal = seal
        self._open()

    def write(self, piece: bytes) -> None:
        if self._file.tell() > self._empty_bytes and self._file.tell() + len(piece) > self._most:
            self._file.close()
            make_room(self._path)
            self._open()
        if self._seal is not None:
            piece = frame(self._seal, piece, log_part(self._log, self._pieces))
        self._file.write(piece)
        self._pieces += 1

    def close(self) -> None:
        self._file.close()

    def _open(self) -> None:
        self._log, self._pieces = new_id("log"), 0
        if self._seal is None:
            self._file = self._path.open("ab", buffering=0)
            self._empty_bytes = 0
        else:
            # Somebody may read it already: it appears with its head.
            unfinished = self._path.with_name(f".{self._path.name}.new")
            self._file = unfinished.open("wb", buffering=0)
            self._empty_bytes = self._file.write(head(self._seal, self._log))
            unfinished.rename(self._path)


def make_room(path: Path) -> None:
    """Numbers the older ones anew; the oldest goes."""
    for number in range(KEPT - 1, 0, -1):
        older = path if number == 1 else path.with_name(f"{path.name}.{number - 1}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number}"))


class Pump(threading.Thread):
    """Carries a pipe into a log until the pipe ends."""

    def __init__(self, descriptor: int, path: Path, seal: Seal | None) -> None:
        super().__init__(name=f"pump {path.name}", daemon=True)
        self._descriptor = descriptor
        self._path = path
        self._seal = seal

    def run(self) -> None:
        log = RotatedLog(self._path, seal=self._seal)
        try:
            while piece := os.read(self._descriptor, PIECE_BYTES):
                log.write(piece)
        finally:
            log.close()
            os.close(self._descriptor)


def gather_own_logs(source: Path, target: Path, least_bytes: int = 0) -> None:
    """Moves log files that the program wrote itself to where they are kept; the last bytes of those that are too long.

    The folder is the program's: only plain files of one name are touched, and links are never followed."""
    with enter(source) as folder:
        for name, status in folder.entries():
            if is_plain(status) and status.st_size >= least_bytes:
                target.mkdir(exist_ok=True)
                make_room(target / safe_name(name))
                _gather(folder, name, target / safe_name(name))


def _gather(folder: Folder, name: str, place: Path) -> None:
    try:
        folder.move_out(name, place)
        _keep_last(place)
    except OSError:
        # Whatever the program put in the place of the file meanwhile.
        with suppress(OSError), enter(place.parent) as kept:
            remove(kept, place.name)


def seal_logs(plain: Path, sealed: Path, seal: Seal) -> None:
    """Of a folder of logs that are written no more, as each was left by `gather_own_logs`."""
    sealed.mkdir(parents=True, exist_ok=True)
    for path in sorted(plain.iterdir(), reverse=True):
        log = new_id("log")
        # The unfinished file is not among those that are shown.
        with path.open("rb") as file, replacing(sealed / path.name, folder=sealed.parent) as closed:
            closed.write(head(seal, log) + frame(seal, _last(file), log_part(log, 0)))
            make_room(sealed / path.name)
        path.unlink()


def _keep_last(path: Path) -> None:
    """What was moved may be replaced no more; that it is a plain file is asked again of the file itself."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "r+b") as file:
        status = os.fstat(descriptor)
        if not is_plain(status):
            path.unlink()
        elif status.st_size > LOG_BYTES:
            last = _last(file)
            file.seek(0)
            file.truncate()
            file.write(last)


def _last(file: BinaryIO) -> bytes:
    """Its program may have it open still, and make it longer than the memory is."""
    file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_BYTES))
    return file.read(LOG_BYTES)
