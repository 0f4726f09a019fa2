"""What a table's log may cost whoever reads it. Any engine may have written it, and a tenant's own bucket may hold anything.

The bounds hold before memory is taken: sizes are compared first, and JSON is only parsed if it cannot become much more than
its bytes."""

from dataclasses import dataclass
from typing import Any

import orjson

from millrace.model.errors import TooLarge

MIB = 1 << 20
# Of one action, which is one line of a commit.
MOST_LINE_BYTES = 2 * MIB
MOST_LINE_VALUES = 200_000
# Behind the last checkpoint. Writers make one every 10 to 100 commits.
MOST_COMMITS = 20_000
# Commits that are read ahead, of a table elsewhere.
LOG_AHEAD_BYTES = 16 * MIB
_REMEDY = "Write a checkpoint of the table with the engine that wrote it, or merge its files (OPTIMIZE)."


@dataclass(frozen=True, slots=True)
class LogBounds:
    """`log_bytes`: of one file of the log. `snapshot_bytes`: what the list of a table's files may take in memory, about.
    `file_rows`, `vector_bytes`: how many rows of a file are looked at together, and the bytes that tell which of them are
    deleted. `rows_apart`: data files are decoded in bounded processes. `plain_bytes`: what may come out of a checkpoint that
    is decoded in the reader's own process."""

    log_bytes: int = 256 * MIB
    snapshot_bytes: int = 1024 * MIB
    file_rows: int = 1 << 28
    vector_bytes: int = 64 * MIB
    rows_apart: bool = False
    plain_bytes: int = 512 * MIB


# Of tables that we or the operator's engines write, and of those in a place that a tenant chose: about 45,000 files.
OURS, TENANTS = LogBounds(), LogBounds(16 * MIB, 32 * MIB, 4_000_000, 8 * MIB, True, 0)


def parsed(text: bytes | str) -> Any:
    """The JSON value. ValueError if it is none, or one that would take much memory."""
    if len(text) > MOST_LINE_BYTES:
        raise ValueError(f"an action has {len(text)} bytes, more than {MOST_LINE_BYTES}")
    marks: tuple[Any, ...] = (b",", b":", b"[", b"{") if isinstance(text, bytes) else (",", ":", "[", "{")
    if len(text) > MOST_LINE_VALUES and sum(map(text.count, marks)) > MOST_LINE_VALUES:
        raise ValueError(f"an action has more than {MOST_LINE_VALUES} values")
    return orjson.loads(text)


def too_large(where: str, name: str, what: str, remedy: str = _REMEDY) -> TooLarge:
    return TooLarge(f"{name} of the Delta table at {where} {what}.", remedy=remedy, code="log_too_large")


def room(listed: int, most: int) -> int:
    """The bytes that a file of the log may have: a little more than were listed, since it may have been written again. Some
    stores list no sizes."""
    return min(most, max(2 * listed, MIB))


def refuse_larger(where: str, name: str, size: int, most: int) -> None:
    if size > most:
        raise too_large(where, name, f"has {size} bytes; {most} are read at most")
