"""docs/delta.md shows the stored result of the matrix, and the result shows no failure that was overlooked."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millrace.lake.foreign import OPTIONAL_FEATURES
from tests.interop.comparing import compare, compare_counts
from tests.interop.engine import EngineError
from tests.interop.known import FAULTS, Fault
from tests.interop.matrix import planned
from tests.interop.outcome import FAILED, PARKED, REFUSED_BY_WRITER, Cell
from tests.interop.readers import NAMES, Reader
from tests.interop.result import PAGE, load, page_with, render

ROOT = Path("/nowhere/t")
COLUMNS = ("id", "at")
WANTED = {3: (COLUMNS, ['["a", 1]', '["b", 2]'])}
FAULT = Fault(("at",), "at is another")


def test_the_page_is_what_the_stored_result_makes() -> None:
    text = PAGE.read_text()
    assert page_with(text, *load()) == text


def test_the_stored_result_is_whole_and_sound() -> None:
    cells, versions = load()
    assert [cell.name for cell in cells] == [cell.name for *_, column in planned() for cell in column]
    assert set(versions) == set(NAMES)
    for cell in cells:
        assert cell.is_sound, cell
        assert cell.versions, cell.name
        assert set(cell.readers) == set(NAMES), cell.name


@pytest.mark.parametrize(
    "wrong",
    [
        {"outcome": FAILED, "words": "KeyError: 'x'"},
        {"outcome": PARKED, "words": "Use columns of scalar types."},
        {"outcome": REFUSED_BY_WRITER, "words": "scala.MatchError"},
        {"readers": {"polars": "version 3: 1 rows instead of 2"}},
    ],
)
def test_a_failure_cannot_be_overlooked(wrong: dict[str, Any]) -> None:
    cells, versions = load()
    failed = replace(cells[1], **wrong)
    assert not failed.is_sound
    shown = render([cells[0], failed, *cells[2:]], versions)
    assert wrong.get("words", "1 rows instead of 2") in shown


def test_the_page_tells_known_faults_with_their_remedies() -> None:
    shown = render(*load())
    assert all(fault.words in shown for fault in FAULTS.values())


def test_the_page_names_every_feature_that_may_stop_a_table() -> None:
    text = PAGE.read_text()
    assert [name for name in OPTIONAL_FEATURES if f"`{name}`" not in text] == []


def reader(rows: Sequence[tuple[str, int]], counts: int = 0) -> Reader:
    def read(_: Path, __: int, columns: Sequence[str]) -> list[str]:
        return [f'["{key}", {at}]' if "at" in columns else f'["{key}"]' for key, at in rows]

    return Reader(read, lambda *_: counts)


def failing(*_: Any) -> Any:
    raise EngineError("scala.MatchError: x")


def test_a_reader_is_compared_with_the_model() -> None:
    assert compare(reader([("a", 1), ("b", 2)]), ROOT, WANTED) == ""
    assert compare(reader([("a", 1), ("b", 3)]), ROOT, WANTED).startswith("version 3: 2 rows instead of 2")
    assert compare(reader([("a", 1)]), ROOT, WANTED).startswith("version 3: 1 rows instead of 2")
    assert "MatchError" in compare(Reader(failing, failing), ROOT, WANTED)
    assert compare_counts(reader([], counts=2), ROOT, {("id", "a"): 2}) == ""
    assert compare_counts(reader([], counts=1), ROOT, {("id", "a"): 2}) == "id = a: 1 instead of 2"
    assert "MatchError" in compare_counts(Reader(failing, failing), ROOT, {("id", "a"): 2})


def test_a_known_fault_excuses_its_columns_only_and_as_long_as_it_shows() -> None:
    assert compare(reader([("a", 1), ("b", 3)]), ROOT, WANTED, FAULT) == ""
    assert compare(reader([("a", 1), ("c", 3)]), ROOT, WANTED, FAULT).startswith("version 3")
    assert "take it out" in compare(reader([("a", 1), ("b", 2)]), ROOT, WANTED, FAULT)


def test_names_of_cells_are_unique() -> None:
    names = [cell.name for *_, column in planned() for cell in column]
    assert len(set(names)) == len(names)
    assert Cell("a", "b", "c", "d").name not in names
