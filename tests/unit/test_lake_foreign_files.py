"""Files of other engines: whatever types they have, imports go on, and every reader sees each key once."""

import datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace.lake.bounds import LogBounds
from millrace.lake.compact import run
from millrace.lake.log import load
from millrace.lake.read import rows_up_to, scan
from millrace.lake.schema import TableSpec
from millrace.lake.sidecar import write_data_file
from millrace.lake.state import TableState
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.model.errors import Corrupt
from tests.support.foreign import commit, file_of, removals

UTC = datetime.UTC
SPEC = TableSpec(
    "t", pa.schema([("id", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("n", pa.int32())]), ("id",)
)
NEVER = TableSpec("t", SPEC.schema, ("id",), deletion_vectors="never")
FAR = datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
OLD = datetime.datetime(1, 1, 1, tzinfo=UTC)
MODES = pytest.mark.parametrize("spec", [SPEC, NEVER], ids=["vectors", "never"])

Row = tuple[str | None, datetime.datetime | None, int | None]


def rows_at(version: int | None, *rows: Row) -> pa.Table:
    columns: dict[str, Any] = {
        "id": pa.array([row[0] for row in rows], pa.string()),
        "at": pa.array([row[1] for row in rows], pa.timestamp("us", tz="UTC")),
        "n": pa.array([row[2] for row in rows], pa.int32()),
    }
    if version is not None:
        columns |= {
            "_version": pa.array([version] * len(rows), pa.int64()),
            "_import": pa.array(["i"] * len(rows)),
            "_row": pa.array(range(len(rows)), pa.int64()),
        }
    return pa.table(columns)


def put(table: LakeTable, version: int, *rows: Row) -> None:
    table.apply([write_data_file(table.store, rows_at(version, *rows), table.spec.key, "part")])


def a_table(root: Path, spec: TableSpec = SPEC, *rows: Row) -> LakeTable:
    table = LakeTable(Store(root), spec)
    put(table, 1, *(rows or (("a", FAR, 1), ("b", OLD, 2), ("c", None, 3))))
    return table


def seen(table: LakeTable) -> list[Row]:
    """By us and by deltalake, which must agree."""
    ours = scan(table.store, load(table.store), ["id", "at", "n"])
    theirs = pa.table(deltalake.DeltaTable(str(table.store.root)).scan().read_all()).select(["id", "at", "n"])
    found = [sorted((tuple(row.values()) for row in rows.to_pylist()), key=str) for rows in (ours, theirs)]
    assert found[0] == found[1]
    return found[0]  # type: ignore[return-value]


def merged(table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """All files become one."""
    monkeypatch.setattr("millrace.lake.compact.MOST_SMALL_FILES", 0)
    table.maintain()
    assert len(load(table.store).files) == 1


def retyped(rows: pa.Table, **types: pa.DataType) -> pa.Table:
    for name, kind in types.items():
        if pa.types.is_null(kind):
            cells = pa.nulls(rows.num_rows)
        elif pa.types.is_dictionary(kind):
            cells = rows[name].dictionary_encode()
        else:
            cells = rows[name].cast(kind)
        rows = rows.set_column(rows.schema.get_field_index(name), name, cells)
    return rows


VIEWS = [
    {"id": pa.string_view(), "_import": pa.string_view()},
    {"id": pa.large_string()},
    {"id": pa.dictionary(pa.int32(), pa.string()), "_import": pa.dictionary(pa.int32(), pa.string())},
    {"id": pa.binary()},
    {"n": pa.int16(), "_version": pa.int32()},
    {"n": pa.int64(), "at": pa.timestamp("ms", tz="UTC")},
    {"at": pa.timestamp("us")},
    {"n": pa.null()},
]


@MODES
@pytest.mark.parametrize("types", VIEWS, ids=lambda types: "-".join(f"{n}.{t}" for n, t in types.items())[:40])
def test_a_file_of_other_types_is_read_as_the_table_declares_it(
    tmp_path: Path, spec: TableSpec, types: dict[str, pa.DataType], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_table(tmp_path, spec)
    noon, n = datetime.datetime(2024, 2, 29, 12, tzinfo=UTC), None if types.get("n") == pa.null() else 4
    rows = rows_at(2, ("a", noon, n), ("d", noon, n), ("e", noon, n))
    commit(tmp_path, *removals(tmp_path), file_of(tmp_path, retyped(rows, **types)))
    put(table, 3, ("a", noon, 5), ("e", noon, 6))
    assert seen(table) == [("a", noon, 5), ("d", noon, n), ("e", noon, 6)]
    merged(table, monkeypatch)
    assert seen(table) == [("a", noon, 5), ("d", noon, n), ("e", noon, 6)]


@MODES
def test_int96_timestamps_of_any_year_survive_a_rewrite(tmp_path: Path, spec: TableSpec) -> None:
    """Spark writes them."""
    table = a_table(tmp_path, spec)
    rows = rows_at(2, ("a", FAR, 1), ("b", OLD, 2), ("c", None, 3))
    commit(tmp_path, *removals(tmp_path), file_of(tmp_path, rows, use_deprecated_int96_timestamps=True))
    put(table, 3, ("c", FAR, 4))
    expected = [("a", FAR, 1), ("b", OLD, 2), ("c", FAR, 4)]
    assert sorted(scan(table.store, load(table.store), ["id", "at", "n"]).to_pylist(), key=str) == [
        dict(zip(("id", "at", "n"), row, strict=True)) for row in expected
    ]
    if spec is NEVER:
        assert seen(table) == expected
        kinds = {pq.read_schema(tmp_path / file.name).field("at").type for file in load(table.store).files.values()}
        assert kinds == {pa.timestamp("us", tz="UTC")}


@MODES
def test_rows_without_a_version_lose_against_every_import(
    tmp_path: Path, spec: TableSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_table(tmp_path, spec)
    commit(tmp_path, file_of(tmp_path, rows_at(None, ("d", FAR, 1), ("e", FAR, 2), ("f", FAR, 3))))
    put(table, 1, ("d", OLD, 7))
    assert seen(table)[3:] == [("d", OLD, 7), ("e", FAR, 2), ("f", FAR, 3)]
    merged(table, monkeypatch)
    put(table, 1, ("e", OLD, 8))
    assert seen(table)[3:] == [("d", OLD, 7), ("e", OLD, 8), ("f", FAR, 3)]


def test_a_truncation_removes_rows_without_a_version(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    with_nulls = rows_at(5, ("e", FAR, 1), ("f", FAR, 2))
    versions = pa.array([None, 5], pa.int64())
    with_nulls = with_nulls.set_column(3, "_version", versions)
    commit(tmp_path, file_of(tmp_path, rows_at(None, ("d", FAR, 1))), file_of(tmp_path, with_nulls))
    table.apply([], floor=2)
    assert seen(table) == [("f", FAR, 2)]


@MODES
def test_a_file_without_its_number_of_rows(tmp_path: Path, spec: TableSpec) -> None:
    table = a_table(tmp_path, spec)
    commit(tmp_path, file_of(tmp_path, rows_at(2, ("d", FAR, 1), ("e", FAR, 2)), told=False))
    put(table, 3, ("d", OLD, 7), ("a", OLD, 8))
    assert seen(table) == [("a", OLD, 8), ("b", OLD, 2), ("c", None, 3), ("d", OLD, 7), ("e", FAR, 2)]


@MODES
def test_a_key_that_another_engine_wrote_twice_is_there_once_after_its_next_row(
    tmp_path: Path, spec: TableSpec
) -> None:
    table = a_table(tmp_path, spec)
    commit(tmp_path, file_of(tmp_path, rows_at(2, ("d", FAR, 1), ("d", FAR, 2), ("e", FAR, 3), ("e", OLD, 4))))
    put(table, 3, ("e", OLD, 7))
    assert seen(table)[3:] == [("d", FAR, 1), ("d", FAR, 2), ("e", OLD, 7)]
    put(table, 4, ("d", OLD, 8))
    assert seen(table)[3:] == [("d", OLD, 8), ("e", OLD, 7)]


@MODES
def test_compaction_keeps_both_rows_of_a_key_that_another_engine_wrote_twice(tmp_path: Path, spec: TableSpec) -> None:
    table = a_table(tmp_path, spec)
    commit(tmp_path, file_of(tmp_path, rows_at(None, ("d", FAR, 1))), file_of(tmp_path, rows_at(None, ("d", FAR, 2))))
    assert run(table.store, spec, tuple(table.snapshot().files.values())) is not None
    assert len(table.snapshot().files) == 1
    assert seen(table)[3:] == [("d", FAR, 1), ("d", FAR, 2)]
    put(table, 3, ("d", OLD, 7))
    assert seen(table)[3:] == [("d", OLD, 7)]


@MODES
def test_a_row_without_its_key_stays_as_it_is(tmp_path: Path, spec: TableSpec) -> None:
    table = a_table(tmp_path, spec)
    commit(tmp_path, file_of(tmp_path, rows_at(2, (None, FAR, 1), ("e", FAR, 2))))
    put(table, 3, ("e", OLD, 7), ("", OLD, 8))
    assert (None, FAR, 1) in seen(table)
    assert ("", OLD, 8) in seen(table)
    assert len(seen(table)) == 6


def test_a_column_of_another_kind_is_refused_in_words(tmp_path: Path) -> None:
    table = a_table(tmp_path, NEVER)
    rows = rows_at(2, ("d", FAR, 1), ("e", FAR, 2))
    commit(tmp_path, file_of(tmp_path, retyped(rows, n=pa.string()), name="strange.parquet"))
    with pytest.raises(
        Corrupt, match=r"Column 'n' of strange\.parquet has the type string; .* declares int32"
    ) as refused:
        put(table, 3, ("d", OLD, 7))
    assert "RESTORE" in refused.value.remedy


def test_numbers_that_do_not_fit_are_refused_in_words(tmp_path: Path) -> None:
    table = a_table(tmp_path, NEVER)
    rows = rows_at(2, ("d", FAR, 1), ("e", FAR, 2))
    rows = rows.set_column(2, "n", pa.array([1, 1 << 40], pa.int64()))
    commit(tmp_path, file_of(tmp_path, rows, name="strange.parquet"))
    with pytest.raises(Corrupt, match=r"Column 'n' of strange\.parquet"):
        put(table, 3, ("d", OLD, 7))


def test_deletes_of_a_key_reach_rows_in_files_of_others(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    commit(tmp_path, file_of(tmp_path, retyped(rows_at(2, ("d", FAR, 1)), id=pa.string_view())))
    gone = rows_at(3, ("d", None, None), ("a", None, None)).append_column("_deleted", pa.array([True, True]))
    table.apply([write_data_file(table.store, gone, table.spec.key, "part")])
    assert seen(table) == [("b", OLD, 2), ("c", None, 3)]
    assert TableState.of(table.snapshot().metadata).tombstones


class BoundedStore(Store):
    """Decodes data files in bounded processes, as for tables in a tenant's own bucket."""

    bounds = LogBounds(rows_apart=True)


@MODES
def test_the_same_holds_where_files_are_decoded_in_bounded_processes(tmp_path: Path, spec: TableSpec) -> None:
    table = a_table(tmp_path, spec)
    table = LakeTable(BoundedStore(tmp_path), spec)
    commit(tmp_path, *removals(tmp_path), file_of(tmp_path, retyped(rows_at(2, ("a", FAR, 1)), id=pa.string_view())))
    commit(
        tmp_path, file_of(tmp_path, rows_at(None, ("d", FAR, 1), ("d", OLD, 2)), use_deprecated_int96_timestamps=True)
    )
    put(table, 3, ("a", OLD, 7))
    assert len(rows_up_to(table.store, load(table.store), 0)) == 1
    put(table, 3, ("d", FAR, 8))
    assert seen(table) == [("a", OLD, 7), ("d", FAR, 8)]
