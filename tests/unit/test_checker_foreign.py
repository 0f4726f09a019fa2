"""Other engines that write during a soak do what the checker believes they do."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from checker.board import Board, Lines
from checker.dump import read_lines
from checker.foreign.deltalake_writer import DeltalakeWriter
from checker.foreign.operations import APPEND, DELETE, FIRST_KEY, HARMLESS, MERGE, TAKE, UPDATE, Operation, choose
from checker.foreign.rounds import Rounds, ours_in
from checker.foreign.spark_writer import statement
from checker.tables import Table

IMPORTED = pl.DataFrame({
    "k": [1, 39, 40], "w": ["a", "b", "c"], "v1": [1, 2, 3], "v2": ["0", "1", "2"], "v3": [0.1, 0.2, 0.3], "h": [1, 2, 3],
    "_version": [1, 1, 1], "_import": ["i", "i", "i"], "_row": [1, 2, 3],
}, schema_overrides={"v1": pl.Int32})  # fmt: skip
ADDED = {FIRST_KEY + number: f"foreign 1 {number}" for number in range(4)}


@pytest.fixture
def location(tmp_path: Path) -> Path:
    place = tmp_path / "lake" / "soak-a" / "orders"
    IMPORTED.write_delta(str(place))
    return place


def imported(location: Path) -> list[int]:
    keys = pl.scan_delta(str(location)).select("k").collect()["k"]
    return sorted(key for key in keys if key < FIRST_KEY)


def test_each_deed_does_what_it_says(location: Path) -> None:
    writer, rows = DeltalakeWriter(), dict[int, str]()
    for operation in (
        Operation(APPEND, ADDED),
        Operation(MERGE, {FIRST_KEY: "foreign 2 0", FIRST_KEY + 9: "foreign 2 9"}),
        Operation(UPDATE, {FIRST_KEY + 1: "foreign 3 1"}),
        Operation(TAKE, keys=(FIRST_KEY + 2, FIRST_KEY + 3)),
        *(Operation(kind, rest=1) for kind in HARMLESS),
    ):
        writer.do(location, operation)
        rows = operation.after(rows)
        assert ours_in(location) == rows
        assert imported(location) == [1, 39, 40]
    assert rows == {FIRST_KEY: "foreign 2 0", FIRST_KEY + 1: "foreign 3 1", FIRST_KEY + 9: "foreign 2 9"}
    writer.do(location, Operation(DELETE))
    assert imported(location) == [1, 40]


def test_every_choice_is_one_that_the_table_allows() -> None:
    rng, rows, kinds = np.random.default_rng(1), dict[int, str](), set()
    for number in range(500):
        operation = choose(rng, number, rows, of_rows=True)
        kinds.add(operation.kind)
        if operation.kind == APPEND:
            assert not operation.rows.keys() & rows.keys()
        if operation.kind in (UPDATE, TAKE):
            assert {*operation.rows, *operation.keys} <= rows.keys()
        assert statement(Path("/lake"), operation)
        rows = operation.after(rows)
    assert kinds == {*HARMLESS, APPEND, MERGE, UPDATE, TAKE, DELETE}
    assert {choose(rng, 1, {}, of_rows=False).kind for _ in range(100)} == set(HARMLESS)


@pytest.mark.usefixtures("location")
def test_rounds_say_what_was_done_and_leave_a_broken_table_alone(tmp_path: Path) -> None:
    board, lines = Board(), Lines(tmp_path / "foreign.jsonl")
    rounds = Rounds(tmp_path / "lake", [Table("soak-a", "orders", 1.0)], [DeltalakeWriter()], board, lines, seed=1)
    for number in range(12):
        rounds._next(number)
    said = read_lines(tmp_path / "foreign.jsonl")
    assert len(said) == 12
    assert {each["outcome"] for each in said} == {"done"}
    assert all(each["found"] == each["after"] for each in said)
    assert any(each["found"] for each in said)
    with board.hand(("soak-a", "orders")):
        rounds._next(99)
    assert len(read_lines(tmp_path / "foreign.jsonl")) == 12
