"""Whole files or none: a file appears under its name complete, or not at all.

The content goes to a file of a unique name first, so that writers never share an unfinished file. A killed process may leave
one behind: its name begins with a dot and ends in `.partial`."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

UNFINISHED = ".partial"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@contextmanager
def unfinished(folder: str | Path, mode: int = 0o666) -> Iterator[tuple[BinaryIO, str]]:
    """A new file and its name, which is gone when the block ends: the caller links or renames what it wants to keep.

    Makes the folder if it is missing. `mode` applies from the file's first moment."""
    name = os.path.join(folder, f".{uuid.uuid4().hex}{UNFINISHED}")
    try:
        descriptor = os.open(name, _NEW, mode)
    except FileNotFoundError:
        os.makedirs(folder, exist_ok=True)
        descriptor = os.open(name, _NEW, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file, name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


def flush(file: BinaryIO, durable: bool) -> None:
    """`durable`: the content survives a power cut."""
    file.flush()
    if durable:
        os.fsync(file.fileno())


def sync_folder(folder: str | Path) -> None:
    """The names in the folder survive a power cut from now on."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: str | Path) -> None:
    """The content survives a power cut from now on, whoever wrote it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replacing(
    path: Path, *, durable: bool = False, mode: int = 0o666, folder: Path | None = None
) -> Iterator[BinaryIO]:
    """A new file, which takes the place of `path` when the block ends. If the block raises, `path` stays as it was.

    `folder`: where the unfinished file is, if it must not be beside `path`."""
    with unfinished(folder or path.parent, mode) as (file, name):
        yield file
        flush(file, durable)
        os.replace(name, path)
        if durable:
            sync_folder(path.parent)


def replace_file(path: Path, content: bytes | str, *, durable: bool = False, mode: int = 0o666) -> None:
    with replacing(path, durable=durable, mode=mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def create_file(path: Path, content: bytes, *, durable: bool = False, mode: int = 0o666) -> bool:
    """Of many callers exactly one gets True; the others leave its file as it is."""
    with unfinished(path.parent, mode) as (file, name):
        file.write(content)
        flush(file, durable)
        try:
            os.link(name, path)
        except FileExistsError:
            return False
        if durable:
            sync_folder(path.parent)
    return True
