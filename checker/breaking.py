"""Ways to damage a Delta table while it is written, each with its repair: a table's folder in, the repair out."""

import ctypes
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

Repair = Callable[[], None]

MOST_TRIES = 100
_HERE, _EXCHANGE = -100, 2
_LIBC = ctypes.CDLL(None, use_errno=True)


def newest_entry(root: Path) -> int:
    return max(int(path.stem) for path in (root / "_delta_log").glob("*.json") if path.stem.isdigit())


def _next_entry(content: bytes) -> Callable[[Path], Repair]:
    """The platform may commit the same number at the same moment: whoever creates the file first has it."""

    def damage(root: Path) -> Repair:
        for _ in range(MOST_TRIES):
            path = root / "_delta_log" / f"{newest_entry(root) + 1:020}.json"
            with suppress(FileExistsError), path.open("xb") as file:
                file.write(content)
                return path.unlink
        raise RuntimeError(f"{root} is written faster than it can be damaged")

    return damage


def _protocol(reader: int, writer: int, **features: list[str]) -> bytes:
    said = {"protocol": {"minReaderVersion": reader, "minWriterVersion": writer, **features}}
    return json.dumps(said).encode() + b"\n"


def log_in_the_way(root: Path) -> Repair:
    """A file is where the log should be. The names change places at once, so that nobody finds a table without a log."""
    log, aside = root / "_delta_log", root.with_name(f".{root.name}.log")
    aside.write_text("in the way")
    exchange(log, aside)

    def repair() -> None:
        exchange(log, aside)
        aside.unlink()

    return repair


def lost_files(root: Path) -> Repair:
    """The table's data files, those that are only staged so far, and its key files are gone."""
    aside = root.with_name(f".{root.name}.lost")
    moved: list[tuple[Path, Path]] = []
    for path in [*root.glob("*.parquet"), *(root / "_millrace").rglob("*.keys")]:
        kept = aside / path.relative_to(root)
        kept.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            moved.append((path.rename(kept), path))

    def repair() -> None:
        for kept, path in moved:
            path.parent.mkdir(parents=True, exist_ok=True)
            kept.rename(path)
        for folder, _, _ in os.walk(aside, topdown=False):
            os.rmdir(folder)

    return repair


def exchange(one: Path, other: Path) -> None:
    if _LIBC.renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one))


WAYS: dict[str, Callable[[Path], Repair]] = {
    "empty entry": _next_entry(b""),
    "garbage entry": _next_entry(b'{"add": {"path": \xff\n'),
    "entry of another shape": _next_entry(b'{"add": {"path": "x.parquet"}}\n'),
    "unknown protocol": _next_entry(_protocol(9, 19)),
    "unknown feature": _next_entry(_protocol(3, 7, readerFeatures=[], writerFeatures=["timeMachine"])),
    "file in the log's place": log_in_the_way,
    "lost files": lost_files,
}
