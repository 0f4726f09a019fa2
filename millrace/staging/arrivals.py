"""Uploads that a tenant's program sees first: bytes in, a finished file in its `in` folder out; and a list of that folder.

A file appears under its name when it is whole. If the name is taken, the new file gets another one. Where the agreement asks
for encryption, the file is sealed in `arrived` first and moves to `in` when the program runs (`inputs.py`)."""

import os
import stat
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from millrace.beneath.folder import Folder, enter
from millrace.exchange.app_folders import Staging, unusable
from millrace.model.errors import Corrupt, Invalid
from millrace.model.names import new_id
from millrace.seal.keyring import Keyring
from millrace.staging.sealed import Sealer, own_seal, plain_size

MOST_NAME_BYTES = 200


def checked_file_name(given: str | None) -> str:
    """The last part of the name that the sender gave, if a file may have it."""
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
    """A file that is being received; only `keep` makes it visible under its name. With `keys` it is sealed while it arrives,
    by a data key of its own, which the first `write` asks for."""

    def __init__(self, staging: Staging, name: str, keys: Keyring | None = None) -> None:
        self._staging = staging
        self._keys = keys
        self._path = staging.inbox if keys is None else staging.arrived
        self._name = checked_file_name(name)
        self._partial = f".{new_id('up')}.partial"
        self._folder: Folder
        self._file: BinaryIO
        self._sealer: Sealer | None = None

    def __enter__(self) -> Self:
        if self._keys is not None:
            self._path.mkdir(parents=True, exist_ok=True)
        self._folder = _entered(self._path)
        try:
            self._file = self._folder.create(self._partial)
        except BaseException:
            self._folder.close()
            raise
        return self

    def write(self, piece: bytes) -> None:
        if self._keys is None:
            self._file.write(piece)
        else:
            self._sealing(self._keys).write(piece)

    def _sealing(self, keys: Keyring) -> Sealer:
        if self._sealer is None:
            self._sealer = Sealer(self._file, own_seal(keys, self._staging.tenant, new_id("arr")))
        return self._sealer

    def keep(self) -> Path:
        if self._keys is not None:
            self._sealing(self._keys).finish()
        self._file.flush()
        own_as(self._folder, self._file)
        for name in (self._name, other_name(self._name)):
            if self._keys is not None and self._is_in_use(name):
                continue
            try:
                self._folder.link(self._partial, name)
            except FileExistsError:
                continue
            return self._path / name
        raise Invalid(f"{self._name!r} could not be kept.", remedy="Send it under another name.")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._folder:
            self._file.close()
            with suppress(FileNotFoundError):
                self._folder.unlink(self._partial)

    def _is_in_use(self, name: str) -> bool:
        """By a file that the program has not taken yet."""
        with suppress(OSError), enter(self._staging.inbox) as inbox:
            return inbox.exists(name)
        return False


def _entered(path: Path) -> Folder:
    try:
        return enter(path)
    except OSError as failed:
        raise unusable(path, failed) from failed


def own_as(folder: Folder, file: BinaryIO) -> None:
    """Gives the file to whoever the folder is for: its owner, or the group that may write there."""
    shared = folder.status()
    if os.geteuid() == 0:
        os.fchown(file.fileno(), shared.st_uid, shared.st_gid)
    elif shared.st_mode & stat.S_IWGRP:
        os.fchmod(file.fileno(), 0o660)


def other_name(name: str) -> str:
    """Another name for the file, no longer than a name may be."""
    stem, dot, ending = name.partition(".")
    added = f"-{new_id('up')}"
    ending = _cut(dot + ending, slice(-MOST_NAME_BYTES // 2, None))
    room = MOST_NAME_BYTES - len(added) - len(os.fsencode(ending))
    return _cut(stem, slice(room)) + added + ending


def fitting_name(name: str) -> str:
    """The name itself unless it is too long."""
    return name if len(os.fsencode(name)) <= MOST_NAME_BYTES else other_name(name)


def _cut(text: str, part: slice) -> str:
    raw = os.fsencode(text)
    return text if len(raw[part]) == len(raw) else raw[part].decode(errors="ignore")


def waiting_files(staging: Staging, most: int) -> list[dict[str, Any]]:
    """The files that the tenant's program has not taken yet, by name: those in `in` and, sealed, in `arrived`."""
    found = [_waiting(name, status.st_size, status) for name, status in _visible(staging.inbox, most)]
    for name, status in _visible(staging.arrived, most):
        size = status.st_size
        # A damaged file is listed too.
        with suppress(Corrupt, FileNotFoundError):
            size = plain_size(staging.arrived / name)
        found.append(_waiting(name, size, status))
    return sorted(found, key=lambda one: str(one["file"]))[:most]


def _visible(path: Path, most: int) -> list[tuple[str, os.stat_result]]:
    """Files; nothing if there is no folder of this name, whatever else is."""
    try:
        with enter(path) as folder:
            entries = folder.first(most, lambda name: not name.startswith("."))
    except OSError:
        return []
    return [(name, status) for name, status in entries if stat.S_ISREG(status.st_mode)]


def _waiting(name: str, size: int, status: os.stat_result) -> dict[str, Any]:
    arrived = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="milliseconds")
    return {"file": name, "bytes": size, "arrived_at": arrived.replace("+00:00", "Z")}
