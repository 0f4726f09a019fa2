"""Whole files or none: a file appears under its name complete, or not at all.

The content goes to a unique name in the same folder first, so that writers never share an unfinished file. A killed process
may leave one behind: its name begins with a dot and ends in `.partial`."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

PARTIAL = ".partial"


@contextmanager
def replacing(path: Path, *, durable: bool = False, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A new file, which takes the place of `path` when the block ends. If the block raises, `path` stays as it was.

    `durable`: the content survives a power cut. `mode` applies to the file from its first moment."""
    with _written(path, mode) as (unfinished, file):
        yield file
        _finish(file, durable)
        os.replace(unfinished, path)


def replace_file(path: Path, content: bytes | str, *, durable: bool = False, mode: int = 0o666) -> None:
    """Makes the folder if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, durable=durable, mode=mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def create_file(path: Path, content: bytes, *, durable: bool = False, mode: int = 0o666) -> bool:
    """Of many callers exactly one gets True; the others leave its file as it is. Makes the folder if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _written(path, mode) as (unfinished, file):
        file.write(content)
        _finish(file, durable)
        try:
            os.link(unfinished, path)
        except FileExistsError:
            return False
    return True


@contextmanager
def _written(path: Path, mode: int) -> Iterator[tuple[Path, BinaryIO]]:
    unfinished = path.with_name(f".{uuid.uuid4().hex}{PARTIAL}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield unfinished, file
    finally:
        # After a replacement there is nothing left under this name.
        with suppress(FileNotFoundError):
            unfinished.unlink()


def _finish(file: BinaryIO, durable: bool) -> None:
    file.flush()
    if durable:
        os.fsync(file.fileno())
