"""Output of a running program in, log files of bounded size out: the newest under its name, older ones numbered."""

import os
import stat
import threading
from pathlib import Path

LOG_BYTES = 4 << 20
KEPT = 3
PIECE_BYTES = 1 << 16


class RotatedLog:
    def __init__(self, path: Path, most_bytes: int = LOG_BYTES, kept: int = KEPT) -> None:
        self._path = path
        self._most = most_bytes
        self._kept = kept
        self._file = path.open("ab", buffering=0)

    def write(self, piece: bytes) -> None:
        if self._file.tell() and self._file.tell() + len(piece) > self._most:
            self._file.close()
            for number in range(self._kept - 1, 0, -1):
                older = self._numbered(number - 1)
                if older.exists():
                    older.replace(self._numbered(number))
            self._file = self._path.open("ab", buffering=0)
        self._file.write(piece)

    def close(self) -> None:
        self._file.close()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path


class Pump(threading.Thread):
    """Carries a pipe into a log until the pipe ends."""

    def __init__(self, descriptor: int, path: Path) -> None:
        super().__init__(name=f"pump {path.name}", daemon=True)
        self._descriptor = descriptor
        self._path = path

    def run(self) -> None:
        log = RotatedLog(self._path)
        try:
            while piece := os.read(self._descriptor, PIECE_BYTES):
                log.write(piece)
        finally:
            log.close()
            os.close(self._descriptor)


def gather_own_logs(source: Path, target: Path, least_bytes: int = 0, kept: int = KEPT) -> None:
    """Moves log files that the program wrote itself to where they are kept; the last bytes of those that are too long.

    The folder is the program's: only plain files of one name are touched, and links are never followed."""
    with os.scandir(source) as entries:
        found = [
            entry for entry in entries if _is_plain(entry) and entry.stat(follow_symlinks=False).st_size >= least_bytes
        ]
    for entry in found:
        target.mkdir(exist_ok=True)
        place = target / os.fsencode(entry.name).decode(errors="backslashreplace")[:200]
        for number in range(kept - 1, 0, -1):
            older = place if number == 1 else place.with_name(f"{place.name}.{number - 1}")
            if older.exists():
                older.replace(place.with_name(f"{place.name}.{number}"))
        try:
            os.rename(entry.path, place)
            _keep_last(place)
        except OSError:
            place.unlink(missing_ok=True)


def _is_plain(entry: "os.DirEntry[str]") -> bool:
    return entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_nlink == 1


def _keep_last(path: Path) -> None:
    """What was moved may be replaced no more; that it is a plain file is asked again of the file itself."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "r+b") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            path.unlink()
        elif status.st_size > LOG_BYTES:
            file.seek(-LOG_BYTES, os.SEEK_END)
            last = file.read()
            file.seek(0)
            file.truncate()
            file.write(last)
