"""What a reader finds in a table against what the model has."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.interop.engine import EngineError
from tests.interop.known import Fault
from tests.interop.outcome import brief
from tests.interop.readers import Reader

MOST_SHOWN = 3

Wanted = Mapping[int, tuple[tuple[str, ...], list[str]]]


def compare(reader: Reader, root: Path, wanted: Wanted, fault: Fault | None = None) -> str:
    """Empty if the reader sees in every version what the model has; else the first difference. With a known fault the other
    columns are compared, and all columns must differ."""
    if fault is None:
        return _first_difference(reader, root, wanted)
    if not _first_difference(reader, root, wanted):
        return f"it reads all columns rightly now: take it out of FAULTS ({fault.words})"
    return _first_difference(reader, root, {version: _without(fault.columns, *w) for version, w in wanted.items()})


def compare_counts(reader: Reader, root: Path, expected: Mapping[tuple[str, Any], int]) -> str:
    for (column, value), count in expected.items():
        found = _tried(reader.count, root, column, value)
        if found != count:
            return f"{column} = {value}: {found} instead of {count}"
    return ""


def _first_difference(reader: Reader, root: Path, wanted: Wanted) -> str:
    for version, (columns, expected) in wanted.items():
        found = _tried(reader.read, root, version, columns)
        if isinstance(found, str):
            return f"version {version}: {found}"
        if found != expected:
            missing = [row for row in expected if row not in set(found)][:MOST_SHOWN]
            surplus = [row for row in found if row not in set(expected)][:MOST_SHOWN]
            counts = f"{len(found)} rows instead of {len(expected)}"
            return f"version {version}: {counts}; missing {missing}, surplus {surplus}"
    return ""


def _without(left_out: Sequence[str], columns: tuple[str, ...], rows: list[str]) -> tuple[tuple[str, ...], list[str]]:
    places = [number for number, name in enumerate(columns) if name not in left_out]
    cells = [json.loads(row) for row in rows]
    texts = sorted(json.dumps([row[number] for number in places], ensure_ascii=False) for row in cells)
    return tuple(columns[number] for number in places), texts


def _tried(ask: Callable[..., Any], root: Path, *arguments: Any) -> Any:
    """What it answers, or what it says against it."""
    try:
        return ask(root, *arguments)
    except EngineError as error:
        return brief(str(error), root)
    except BaseException as error:
        # A panic of a library written in Rust is no Exception.
        return f"{type(error).__name__}: {brief(str(error), root)}"
