"""Uploads that a tenant's program sees first: bytes in, a finished file in its `in` folder out; and what lies there.

A file appears under its name when it is whole. A name that is taken is not overwritten: the newcomer gets another."""

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from millrace.model.errors import Invalid
from millrace.model.names import new_id
from millrace.staging.folders import Staging

MOST_NAME_BYTES = 200


def checked_file_name(given: str | None) -> str:
    """The last part of what the sender calls it, if a file may be called so."""
    name = (given or "").replace("\\", "/").rpartition("/")[2]
    printable = name.isprintable() and len(name.encode(errors="replace")) <= MOST_NAME_BYTES
    if not name or name.startswith(".") or not printable:
        raise Invalid(
            f"{given!r:.60} cannot be the name of a file.",
            remedy=f"Use up to {MOST_NAME_BYTES} printable characters, not beginning with a dot.",
            code="bad_name",
        )
    return name


class Arrival:
    """One file being received; only `keep` makes it visible under its name."""

    def __init__(self, staging: Staging, name: str) -> None:
        self._folder = staging.inbox
        self._name = checked_file_name(name)
        self._partial = self._folder / f".{new_id('up')}.partial"
        self._file: BinaryIO

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        # The folder is another user's: what it prepared under this name must not be followed.
        self._file = os.fdopen(
            os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb"
        )
        return self

    def write(self, piece: bytes) -> None:
        self._file.write(piece)

    def keep(self) -> Path:
        self._file.flush()
        owner = self._folder.stat()
        if os.geteuid() == 0:
            os.fchown(self._file.fileno(), owner.st_uid, owner.st_gid)
        for name in (self._name, self._other_name()):
            try:
                os.link(self._partial, self._folder / name, follow_symlinks=False)
            except FileExistsError:
                continue
            return self._folder / name
        raise Invalid(f"{self._name!r} could not be kept.", remedy="Send it under another name.")

    def _other_name(self) -> str:
        stem, dot, ending = self._name.partition(".")
        return f"{stem}-{new_id('up')}{dot}{ending}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._partial.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A file that the tenant's program has not taken yet."""

    file: str
    bytes: int
    arrived_at: str

    def as_json(self) -> dict[str, Any]:
        return {"file": self.file, "bytes": self.bytes, "arrived_at": self.arrived_at}


def waiting_files(staging: Staging, most: int) -> list[Waiting]:
    """What lies in `in`, by name."""
    try:
        with os.scandir(staging.inbox) as entries:
            found = sorted((e for e in entries if not e.name.startswith(".")), key=lambda entry: entry.name)[:most]
    except FileNotFoundError:
        return []
    return [_waiting(entry) for entry in found if entry.is_file(follow_symlinks=False)]


def _waiting(entry: "os.DirEntry[str]") -> Waiting:
    status = entry.stat(follow_symlinks=False)
    arrived = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="milliseconds")
    return Waiting(entry.name, status.st_size, arrived.replace("+00:00", "Z"))
