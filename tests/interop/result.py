"""The result of a run, as it is kept beside the code, and the part of docs/delta.md that shows it."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.interop.outcome import FAILED, PARKED, REFUSED_BY_WRITER, RESUMED, TAKEN, Cell
from tests.interop.readers import NAMES
from tests.interop.shapes import COLUMNS

ROOT = Path(__file__).parents[2]
STORED = Path(__file__).with_name("result.json")
PAGE = ROOT / "docs" / "delta.md"
BEGIN, END = "<!-- matrix: written by make interop -->", "<!-- end of the matrix -->"
_BETWEEN = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
_VERDICTS = {
    TAKEN: "yes",
    RESUMED: "parked; yes after the remedy",
    PARKED: "PARKED",
    REFUSED_BY_WRITER: "REFUSED",
    FAILED: "FAILS",
}
_COLUMNS = [(shape.name, mode) for shape, mode in COLUMNS]


def save(cells: Sequence[Cell], versions: Mapping[str, str], path: Path = STORED) -> None:
    document = {"versions": dict(versions), "cells": [asdict(cell) for cell in cells]}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def load(path: Path = STORED) -> tuple[list[Cell], dict[str, str]]:
    document: dict[str, Any] = json.loads(path.read_text())
    return [Cell(**cell) for cell in document["cells"]], document["versions"]


def page_with(text: str, cells: Sequence[Cell], versions: Mapping[str, str]) -> str:
    """The page, with this result between its marks."""
    assert _BETWEEN.search(text), f"{BEGIN} and {END} are missing"
    return _BETWEEN.sub(lambda _: f"{BEGIN}\n{render(cells, versions)}\n{END}", text)


def render(cells: Sequence[Cell], versions: Mapping[str, str]) -> str:
    notes: list[str] = []
    by_row: dict[tuple[str, str], dict[tuple[str, str], Cell]] = {}
    for cell in cells:
        by_row.setdefault((cell.writer, cell.operation), {})[cell.shape, cell.mode] = cell
    head = ["writer and operation", *(f"{shape}, `{mode}`" for shape, mode in _COLUMNS)]
    lines = [_line(head), _line(["---"] * len(head))]
    for (writer, operation), row in by_row.items():
        shown = [_shown(row.get(column), notes) for column in _COLUMNS]
        lines.append(_line([f"{writer} {operation}".strip(), *shown]))
    lines += ["", _line(["reader", "version", "tables", "versions compared", "as the model says"]), _line(["---"] * 5)]
    for name in NAMES:
        read = [cell for cell in cells if name in cell.readers]
        wrong = [cell for cell in read if cell.readers[name]]
        faulty = [cell for cell in read if cell.fault(name)]
        verdict = "all" if not wrong else f"all but those of {len(wrong)} tables"
        verdict += f"; {len(faulty)} tables without the columns of a known fault" if faulty else ""
        total = sum(cell.versions for cell in read)
        lines.append(_line([name, versions[name], str(len(read)), f"{total:,}", verdict]))
    return "\n".join([*lines, *([""] if notes else []), *(f"{n}. {note}" for n, note in enumerate(notes, 1))])


def _shown(cell: Cell | None, notes: list[str]) -> str:
    if cell is None:
        return ""
    wrong = [name for name in NAMES if cell.readers.get(name)]
    # What an engine refuses or cannot read is said in a note, once for all cells.
    said = [cell.words] if cell.words else []
    said += [f"{name}: {_without_version(cell.readers[name])}" for name in wrong]
    said += [fault.words for name in NAMES if (fault := cell.fault(name)) is not None and name not in wrong]
    words = _VERDICTS[cell.outcome]
    if wrong:
        words += f", but WRONG for {', '.join(wrong)}"
    return " ".join([words, *(_mark(note, notes) for note in said)])


def _mark(note: str, notes: list[str]) -> str:
    if note not in notes:
        notes.append(note)
    return f"({notes.index(note) + 1})"


def _without_version(words: str) -> str:
    return re.sub(r"^version \d+: ", "", words)


def _line(columns: Sequence[str]) -> str:
    return f"| {' | '.join(column.replace('|', '/') for column in columns)} |"
