"""Prepared tables: rows of every revision meet in the newest shape, whatever was there and whatever comes late."""

import datetime
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace.arrow.types import arrow_type
from millrace.lake.batch import DefinedFile, WriteBatch
from millrace.lake.schema import spec_of
from millrace.lake.state import TableState
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.model.table import Definition
from tests.support.lake import RivalStore
from tests.support.revisions import ID, Revisions, column, rows_of, stage_under, write_under

TEXT = column("text", ["null", "string"])


def read_by_everyone(root: Path) -> list[list[dict[str, Any]]]:
    """What plain readers see, each in key order."""
    delta = deltalake.DeltaTable(str(root))
    live = pa.table(delta.scan().read_all())
    queried = pa.table(deltalake.QueryBuilder().register("t", delta).execute("select * from t").read_all())
    with duckdb.connect() as connection:
        connection.register("live", live)
        ducks = pa.table(connection.sql("select * from live").to_arrow_table())
    polars = pl.scan_delta(str(root)).collect().to_dicts()
    seen = [polars, live.to_pylist(), queried.to_pylist(), ducks.to_pylist()]
    shown = [[{n: c for n, c in row.items() if not n.startswith("_")} for row in rows] for rows in seen]
    return [sorted(rows, key=lambda row: str(next(iter(row.values()))).rjust(20)) for rows in shown]


def assert_everyone_reads(table: LakeTable, expected: list[dict[str, Any]]) -> None:
    assert rows_of(table) == expected
    for seen in read_by_everyone(table.store.root):
        assert seen == expected


def change(root: Path, before: list[Any], after: list[Any], **cells: Any) -> tuple[LakeTable, Definition, Definition]:
    """A table with one row of a first revision, prepared for a second."""
    revisions = Revisions()
    first = revisions.add(ID, *before)
    table = revisions.open(root)
    write_under(table, first, 1, {"id": 1, **cells})
    second = revisions.add(ID, *after)
    table.prepare(second)
    return table, first, second


def paths(table: LakeTable) -> set[str]:
    return set(table.snapshot().files)


def test_an_added_column_without_default_costs_only_metadata(tmp_path: Path) -> None:
    table, first, second = change(tmp_path, [], [TEXT])
    assert len(paths(table)) == 1
    write_under(table, second, 3, {"id": 2, "text": "new"})
    write_under(table, first, 2, {"id": 3})
    assert not any(path.startswith(("rewritten", "aligned")) for path in paths(table))
    assert_everyone_reads(table, [{"id": 1, "text": None}, {"id": 2, "text": "new"}, {"id": 3, "text": None}])


def test_an_added_default_is_written_into_the_rows_that_are_there_and_into_late_ones(tmp_path: Path) -> None:
    table, first, second = change(tmp_path, [], [column("city", "string", default="Oulu")])
    write_under(table, first, 2, {"id": 2})
    write_under(table, second, 3, {"id": 3, "city": "Turku"})
    expected = [{"id": 1, "city": "Oulu"}, {"id": 2, "city": "Oulu"}, {"id": 3, "city": "Turku"}]
    assert_everyone_reads(table, expected)


def test_rows_get_the_default_of_the_revision_that_added_the_column_whenever_they_come(tmp_path: Path) -> None:
    revisions = Revisions()
    first = revisions.add(ID)
    table = revisions.open(tmp_path)
    write_under(table, first, 1, {"id": 1})
    table.prepare(revisions.add(ID, column("n", "int", default=1)))
    table.prepare(revisions.add(ID, column("n", "long", default=2)))
    write_under(table, first, 2, {"id": 2})
    assert_everyone_reads(table, [{"id": 1, "n": 1}, {"id": 2, "n": 1}])


def test_a_dropped_column_is_gone_and_costs_only_metadata(tmp_path: Path) -> None:
    table, first, _ = change(tmp_path, [TEXT], [], text="old")
    write_under(table, first, 2, {"id": 2, "text": "late"})
    assert not any(path.startswith(("rewritten", "aligned")) for path in paths(table))
    assert_everyone_reads(table, [{"id": 1}, {"id": 2}])


def test_a_name_that_comes_back_is_another_column(tmp_path: Path) -> None:
    revisions = Revisions()
    first = revisions.add(ID, TEXT)
    table = revisions.open(tmp_path)
    write_under(table, first, 1, {"id": 1, "text": "old"})
    second = revisions.add(ID)
    table.prepare(second)
    write_under(table, first, 2, {"id": 2, "text": "late"})
    third = revisions.add(ID, TEXT)
    table.prepare(third)
    write_under(table, first, 3, {"id": 3, "text": "later"})
    write_under(table, third, 4, {"id": 4, "text": "new"})
    assert_everyone_reads(table, [*({"id": n, "text": None} for n in (1, 2, 3)), {"id": 4, "text": "new"}])


def test_a_skipped_revision_that_dropped_the_name_counts_too(tmp_path: Path) -> None:
    revisions = Revisions()
    first = revisions.add(ID, TEXT)
    table = revisions.open(tmp_path)
    write_under(table, first, 1, {"id": 1, "text": "old"})
    revisions.add(ID)
    third = revisions.add(ID, TEXT)
    table.prepare(third)
    assert_everyone_reads(table, [{"id": 1, "text": None}])


def test_a_renamed_column_keeps_its_cells(tmp_path: Path) -> None:
    table, first, second = change(tmp_path, [TEXT], [column("words", ["null", "string"], "text")], text="old")
    write_under(table, first, 2, {"id": 2, "text": "late"})
    write_under(table, second, 3, {"id": 3, "words": "new"})
    expected = [{"id": 1, "words": "old"}, {"id": 2, "words": "late"}, {"id": 3, "words": "new"}]
    assert_everyone_reads(table, expected)


@pytest.mark.parametrize("mode", ["auto", "never"])
def test_a_renamed_key_still_finds_its_rows_and_deletes(tmp_path: Path, mode: str) -> None:
    revisions = Revisions(deletion_vectors=mode)
    first = revisions.add(column("id", "int"), TEXT)
    table = revisions.open(tmp_path)
    write_under(table, first, 1, {"id": 1, "text": "one"}, {"id": 2, "text": "two"}, {"id": 3, "text": "three"})
    write_under(table, first, 2, {"id": 3, "_deleted": True}, {"id": 9, "_deleted": True})
    second = revisions.add(column("number", "long", "id"), TEXT, key=["number"])
    table.prepare(second)
    write_under(table, second, 5, {"number": 1, "text": "uno"}, {"number": 2, "_deleted": True})
    write_under(table, first, 4, {"id": 1, "text": "late"}, {"id": 2, "text": "late"}, {"id": 4, "text": "four"})
    write_under(LakeTable(Store(tmp_path), table.spec, definitions=revisions.known.__getitem__), first, 1, {"id": 9})
    table.maintain()
    assert_everyone_reads(table, [{"number": 1, "text": "uno"}, {"number": 4, "text": "four"}])
    assert TableState.of(table.snapshot().metadata).key == ("number",)


WIDENINGS = [
    ("int", "long", 7, 7),
    ("float", "double", 0.5, 0.5),
    ("int", "float", 7, 7.0),
    ("int", "double", 7, 7.0),
    ("long", "float", 1 << 40, float(1 << 40)),
    ("long", "double", 7, 7.0),
    ("string", "bytes", "ä", "ä".encode()),
    ("bytes", "string", "ä".encode(), "ä"),
    ("bytes", "string", b"a\xff", "a\ufffd"),
]


@pytest.mark.parametrize(("before", "after", "cell", "expected"), WIDENINGS)
def test_a_widened_column_reads_the_same_everywhere(
    tmp_path: Path, before: str, after: str, cell: Any, expected: Any
) -> None:
    old, new = column("x", ["null", before]), column("x", ["null", after])
    table, first, second = change(tmp_path, [old], [new], x=cell)
    write_under(table, first, 2, {"id": 2, "x": cell}, {"id": 3})
    write_under(table, second, 3, {"id": 4, "x": expected})
    # Not every engine casts while it reads: every file has the type that the table declares.
    kinds = {pq.read_schema(tmp_path / file.name).field("x").type for file in table.snapshot().files.values()}
    assert kinds == {arrow_type(second.columns[1])}
    rows = [{"id": 1, "x": expected}, {"id": 2, "x": expected}, {"id": 3, "x": None}, {"id": 4, "x": expected}]
    assert_everyone_reads(table, rows)
    for number in range(10, 60):
        write_under(
            table, first if number % 2 else second, number, {"id": number, "x": cell if number % 2 else expected}
        )
    table.maintain()
    assert len(paths(table)) == 1
    assert_everyone_reads(table, [*rows, *({"id": number, "x": expected} for number in range(10, 60))])


def test_nested_types_change_at_any_depth(tmp_path: Path) -> None:
    def record(*fields: dict[str, Any]) -> dict[str, Any]:
        return {"type": "record", "name": "r", "fields": list(fields)}

    old = record(column("a", "int"), column("b", "string"))
    new = record(column("a", "long"), column("c", "string", "b"), column("d", "int", default=9))
    before = [column("one", old), column("many", {"type": "array", "items": old})]
    after = [column("one", new), column("many", {"type": "array", "items": new})]
    cell = {"a": 1, "b": "x"}
    table, first, _ = change(tmp_path, before, after, one=cell, many=[cell, cell])
    write_under(table, first, 2, {"id": 2, "one": cell, "many": []})
    becomes = {"a": 1, "c": "x", "d": 9}
    assert rows_of(table) == [
        {"id": 1, "one": becomes, "many": [becomes, becomes]},
        {"id": 2, "one": becomes, "many": []},
    ]


def test_defaults_of_every_kind(tmp_path: Path) -> None:
    after = [
        column("day", {"type": "int", "logicalType": "date"}, default="2024-02-29"),
        column("flag", "boolean", default=True),
        column("tags", {"type": "array", "items": "string"}, default=["a"]),
        column("maybe", ["null", "string"], default=None),
    ]
    table, _, _ = change(tmp_path, [], after)
    assert rows_of(table) == [{"id": 1, "day": datetime.date(2024, 2, 29), "flag": True, "tags": ["a"], "maybe": None}]


def test_preparing_is_idempotent_and_never_goes_back(tmp_path: Path) -> None:
    table, first, second = change(tmp_path, [], [TEXT])
    version = table.snapshot().version
    for definition in (second, first, second):
        assert table.prepare(definition).version == version
    fresh = LakeTable(
        Store(tmp_path), spec_of(first), definitions={d.fingerprint: d for d in (first, second)}.__getitem__
    )
    assert fresh.prepare(first).version == version
    assert TableState.of(fresh.snapshot().metadata).definition == second.fingerprint


def test_rows_of_a_newer_revision_bring_it_with_them(tmp_path: Path) -> None:
    revisions = Revisions()
    first = revisions.add(ID)
    table = revisions.open(tmp_path)
    write_under(table, first, 1, {"id": 1})
    second = revisions.add(ID, TEXT)
    done = write_under(table, second, 2, {"id": 2, "text": "b"})
    assert done.version == 1
    assert rows_of(table) == [{"id": 1, "text": None}, {"id": 2, "text": "b"}]


def test_the_old_versions_still_read_in_their_own_shape(tmp_path: Path) -> None:
    table, _, _ = change(tmp_path, [TEXT], [column("words", ["null", "string"], "text")], text="old")
    assert rows_of(table, 0) == [{"id": 1, "text": "old"}]
    assert rows_of(table, 1) == [{"id": 1, "words": "old"}]
    assert pl.scan_delta(str(tmp_path), version=0).select("text").collect().rows() == [("old",)]


def test_a_change_of_shape_that_is_overtaken_takes_the_rival_rows_along(tmp_path: Path) -> None:
    revisions = Revisions()
    first = revisions.add(ID, TEXT)
    rival = revisions.open(tmp_path)
    write_under(rival, first, 1, {"id": 1, "text": "a"}, {"id": 2, "text": "b"})
    second = revisions.add(ID, column("words", ["null", "string"], "text"))

    def overtake() -> None:
        write_under(rival, first, 3, {"id": 2, "text": "rival"}, {"id": 3, "text": "rival"})

    store = RivalStore(tmp_path, [overtake])
    table = LakeTable(store, spec_of(first), revisions.known.__getitem__)
    write_under(table, second, 2, {"id": 3, "words": "beaten"}, {"id": 4, "words": "d"})
    words = {row["id"]: row["words"] for row in rows_of(table)}
    assert words == {1: "a", 2: "rival", 3: "rival", 4: "d"}
    write_under(rival, first, 5, {"id": 1, "text": "after"})
    assert rows_of(table)[0] == {"id": 1, "words": "after"}


def test_a_new_generation_begins_empty_and_its_past_stays_out(tmp_path: Path) -> None:
    revisions = Revisions()
    first = revisions.add(ID, TEXT)
    table = revisions.open(tmp_path)
    write_under(table, first, 1, {"id": 1, "text": "a"}, {"id": 2, "_deleted": True})
    second = revisions.add(column("name", "string"), column("id", "string"), key=["name"], floor=10)
    late = stage_under(table.store, first, 3, [{"id": 5, "text": "late"}, {"id": 6, "_deleted": True}])
    table.write(
        WriteBatch(
            (
                DefinedFile(late, first),
                DefinedFile(stage_under(table.store, second, 11, [{"name": "x", "id": "y"}]), second),
            ),
            definition=second,
        )
    )
    state = TableState.of(table.snapshot().metadata)
    assert (state.floor, state.tombstones, state.key) == (10, (), ("name",))
    assert_everyone_reads(table, [{"name": "x", "id": "y"}])
    version = table.snapshot().version
    assert table.write(WriteBatch((DefinedFile(late, first),))).version == version
    write_under(table, second, 12, {"name": "x", "id": "z"})
    assert_everyone_reads(table, [{"name": "x", "id": "z"}])


def test_a_new_generation_drops_tables_from_before_definitions_were_recorded(tmp_path: Path) -> None:
    revisions = Revisions()
    first = revisions.add(ID, TEXT)
    old = LakeTable(Store(tmp_path), spec_of(first))
    old.apply([stage_under(old.store, first, 1, [{"id": 1, "text": "a"}])])
    second = revisions.add(column("text", "long"), key=["text"], floor=5)
    table = revisions.open(tmp_path)
    write_under(table, second, 6, {"text": 1})
    assert_everyone_reads(table, [{"text": 1}])


def test_a_table_from_before_definitions_were_recorded_is_taken_over(tmp_path: Path) -> None:
    revisions = Revisions()
    first = revisions.add(ID, TEXT)
    old = LakeTable(Store(tmp_path), spec_of(first))
    old.apply([stage_under(old.store, first, 1, [{"id": 1, "text": "a"}])])
    table = revisions.open(tmp_path)
    write_under(table, first, 2, {"id": 2, "text": "b"})
    second = revisions.add(ID, column("words", ["null", "string"], "text"))
    table.prepare(second)
    assert_everyone_reads(table, [{"id": 1, "words": "a"}, {"id": 2, "words": "b"}])


def test_a_handle_of_an_older_revision_adds_nothing_back(tmp_path: Path) -> None:
    table, first, _ = change(tmp_path, [TEXT], [], text="old")
    stale = LakeTable(Store(tmp_path), spec_of(first))
    stale.maintain()
    stale.apply([])
    assert rows_of(table) == [{"id": 1}]


def test_chunks_without_key_keep_their_identity_when_they_change_shape(tmp_path: Path) -> None:
    revisions = Revisions(key=())
    first = revisions.add(ID, TEXT)
    table = revisions.open(tmp_path)
    write_under(table, first, 1, {"id": 1, "text": "a"})
    second = revisions.add(ID, column("words", ["null", "string"], "text"))
    table.prepare(second)
    for _ in range(2):
        write_under(table, first, 1, {"id": 1, "text": "a"})
        write_under(table, first, 2, {"id": 2, "text": "b"})
    assert_everyone_reads(table, [{"id": 1, "words": "a"}, {"id": 2, "words": "b"}])
