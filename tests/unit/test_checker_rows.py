"""Rows that describe themselves: what is sent can be told from any of its cells, and bad rows are bad as they should be."""

import io
import json

import numpy as np
import polars as pl
import pytest

from checker import flavours, rows
from checker.rendering import render, render_keys
from checker.shapes import DEFAULT, FIRST_SHAPE, from_avro


def some(count: int, file_format: str, share: float = 0.3) -> pl.DataFrame:
    rng = np.random.default_rng(7)
    columns = {
        "file": np.full(count, 12),
        "row": np.arange(1, count + 1),
        "k": rng.integers(0, 50, count),
        "nonce": rng.integers(0, 1 << 32, count),
        "flavour": flavours.choose(rng, count, file_format, share),
    }
    return pl.DataFrame(columns, schema=rows.SCHEMA)


def test_a_row_names_itself_and_is_sealed() -> None:
    stored = rows.named(rows.cells(some(500, "csv"), "canary", ["x1", "x2"]))
    assert stored["file"].unique().to_list() == [12]
    assert stored["row"].to_list() == list(range(1, 501))
    assert (rows.reseal(stored, ["x1", "x2"]) == stored["h"].to_numpy()).all()


@pytest.mark.parametrize("column", ["k", "v1", "v2", "v3", "x1"])
def test_a_cell_of_another_row_breaks_the_seal(column: str) -> None:
    stored = rows.named(rows.cells(some(50, "csv", 0), "canary", ["x1"]))
    mixed = stored.with_columns(pl.col(column).shift(1).fill_null(pl.col(column).last()))
    differs = mixed[column] != stored[column]
    assert ((rows.reseal(mixed, ["x1"]) != mixed["h"].to_numpy()) == differs.to_numpy()).all()
    assert differs.any()


def test_good_csv_rows_come_back_as_they_were() -> None:
    sent = some(300, "csv", 0)
    read = pl.read_csv(io.BytesIO(render(sent, "canary", "csv", ["x1"], None)))
    assert read.equals(rows.cells(sent, "canary", ["x1"]).select(read.columns))


def test_good_json_rows_come_back_as_they_were() -> None:
    sent = some(300, "jsonl", 0)
    read = pl.read_ndjson(io.BytesIO(render(sent, "canary", "jsonl", [], "x1")))
    assert read.equals(rows.cells(sent, "canary", []).select(read.columns))


def test_bad_json_rows_are_bad_as_their_flavour_says() -> None:
    sent = some(400, "jsonl", 1.0)
    lines = render(sent, "canary", "jsonl", [], "x1").decode().splitlines()
    for line, flavour in zip(lines, sent["flavour"], strict=True):
        if flavour == flavours.BROKEN:
            with pytest.raises(ValueError):
                json.loads(line)
            continue
        row = json.loads(line)
        assert (flavour == flavours.SHORT) == ("h" not in row)
        assert (flavour == flavours.SURPLUS) == (flavours.UNKNOWN_FIELD in row)
        assert (flavour == flavours.NO_KEY) == (row["k"] is None)
        assert (flavour == flavours.NOT_NUMBER) == isinstance(row["v1"], str)
        assert (flavour == flavours.EARLY) == ("x1" in row)
        assert (flavour == flavours.WIDE) == (isinstance(row["v1"], int) and row["v1"] >= 1 << 31)


def test_bad_csv_rows_are_bad_as_their_flavour_says() -> None:
    sent = some(400, "csv", 1.0)
    head, *lines = render(sent, "canary", "csv", [], None).decode().splitlines()
    columns = len(head.split(","))
    for line, flavour in zip(lines, sent["flavour"], strict=True):
        cells = line.split(",")
        wanted = {flavours.SHORT: columns - 1, flavours.SURPLUS: columns + 1}.get(flavour, columns)
        assert len(cells) == wanted
        assert (flavour == flavours.NO_KEY) == (cells[0] == "")
        assert (flavour == flavours.NOT_NUMBER) == cells[2].startswith("x")


def test_files_of_keys_hold_nothing_else() -> None:
    keys = pl.Series("k", [3, 1])
    assert render_keys(keys, "csv") == b"k\n3\n1\n"
    assert render_keys(keys, "jsonl") == b'{"k":3}\n{"k":1}\n'


def test_the_schema_in_force_decides_what_passes() -> None:
    assert set(flavours.accepted(FIRST_SHAPE, "x1")) == {flavours.GOOD, flavours.DELETE}
    later = FIRST_SHAPE.widened().with_next()
    assert set(flavours.accepted(later, "x1")) >= set(flavours.BY_SCHEMA)
    assert flavours.EARLY not in flavours.accepted(later, "x2")


def test_a_shape_survives_its_declaration() -> None:
    shape = FIRST_SHAPE.widened().with_next().with_next(default=DEFAULT)
    assert from_avro(shape.to_avro("orders")) == shape
    assert shape.added == ("x1", "x2")
    assert shape.next_name == "x3"
