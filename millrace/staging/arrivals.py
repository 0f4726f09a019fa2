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

from millrace.exchange.app_folders import Staging
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
        self._folder = staging.inbox if keys is None else staging.arrived
        self._name = checked_file_name(name)
        self._partial = self._folder / f".{new_id('up')}.partial"
        self._file: BinaryIO
        self._sealer: Sealer | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        # The folder belongs to another user, who may have prepared a link under this name: it is not followed.
        self._file = created(self._partial)
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
            if self._keys is not None and os.path.lexists(self._staging.inbox / name):
                continue
            try:
                os.link(self._partial, self._folder / name, follow_symlinks=False)
            except FileExistsError:
                continue
            return self._folder / name
        raise Invalid(f"{self._name!r} could not be kept.", remedy="Send it under another name.")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._partial.unlink(missing_ok=True)


def created(path: Path) -> BinaryIO:
    """A new file for its owner alone. Fails if anything has this name already."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb")


def own_as(folder: Path, file: BinaryIO) -> None:
    """Gives the file to the owner of the folder."""
    owner = folder.stat()
    if os.geteuid() == 0:
        os.fchown(file.fileno(), owner.st_uid, owner.st_gid)


def is_plain(path: Path) -> bool:
    """A regular file with this name only: no device, no link, no second name of another user's file."""
    status = path.lstat()
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


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
    folders = (staging.inbox, False), (staging.arrived, True)
    found = [(entry, is_sealed) for folder, is_sealed in folders for entry in _visible(folder)]
    waiting: list[dict[str, Any]] = []
    for entry, is_sealed in sorted(found, key=lambda one: one[0].name)[:most]:
        # The program has taken it meanwhile.
        with suppress(FileNotFoundError):
            waiting += [_waiting(entry, is_sealed)] if entry.is_file(follow_symlinks=False) else []
    return waiting


def _visible(folder: Path) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except FileNotFoundError:
        return []


def _waiting(entry: "os.DirEntry[str]", is_sealed: bool) -> dict[str, Any]:
    status = entry.stat(follow_symlinks=False)
    arrived = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="milliseconds")
    size = status.st_size
    if is_sealed:
        # A damaged file is listed too.
        with suppress(Corrupt):
            size = plain_size(Path(entry.path))
    return {"file": entry.name, "bytes": size, "arrived_at": arrived.replace("+00:00", "Z")}
