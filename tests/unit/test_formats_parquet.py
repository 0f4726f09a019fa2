"""Parquet uploads: spooled, then read as Arrow batches."""

import contextlib
import io
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace.formats.cut import CutPiece, Cutter, PieceLimits, UploadOptions, open_cutter
from millrace.model.errors import Invalid, Refused, TooLarge
from millrace.model.table import Definition, TableDeclaration, define

MIB = 1 << 20
ROWS = pa.table(
    {
        "id": pa.array(range(200_000), pa.int64()),
        "name": pa.array([f"name {n}" for n in range(200_000)]),
        "note": pa.array(["red" if n % 2 else None for n in range(200_000)]).dictionary_encode(),
    }
)


def table(**changes: Any) -> Definition:
    fields: list[dict[str, Any]] = [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "note", "type": ["null", "string"]},
    ]
    schema = {"type": "record", "name": "x", "fields": fields}
    return define("t", TableDeclaration("x", schema, file_type="parquet", **changes), 1)


def parquet(rows: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(rows, out, **options)
    return out.getvalue()


def opened(
    spool: Path, definition: Definition | None = None, limits: PieceLimits | None = None, **options: Any
) -> Cutter:
    return open_cutter(definition or table(), UploadOptions(**options), spool_dir=spool, limits=limits)


def cut(data: bytes, spool: Path, definition: Definition | None = None, **options: Any) -> list[CutPiece]:
    cutter = opened(spool, definition, **options)
    pieces = (data[at : at + 100_000] for at in range(0, len(data), 100_000))
    return [*(found for piece in pieces for found in cutter.feed(piece)), *cutter.finish()]


def rows_of(cuts: list[CutPiece]) -> pa.Table:
    return pa.concat_tables([pa.ipc.open_stream(piece.body).read_all() for piece in cuts])


def test_a_column_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    data = parquet(ROWS.slice(0, 10), store_schema=False)
    with pytest.raises(Invalid, match="cannot be read as Parquet"):
        cut(data.replace(b"note", b"n\xffte"), tmp_path)


def test_a_long_row_that_python_cannot_show_costs_itself_only(tmp_path: Path) -> None:
    broken = pa.array([b"a", b"\xff" * 2000, b"c"]).view(pa.string())
    rows = pa.table({"id": [1, 2, 3], "name": broken})
    limits = PieceLimits(piece_bytes=500, row_bytes=1000, kept_bytes=100)
    found = cut(parquet(rows), tmp_path, limits=limits)
    assert [(piece.first_row, piece.rows, piece.encoding) for piece in found] == [
        (1, 1, "arrow"),
        (2, 1, "oversize"),
        (3, 1, "arrow"),
    ]


def test_flipped_octets_are_refused_or_read(tmp_path: Path) -> None:
    chance, data = Random(7), parquet(ROWS.slice(0, 20), row_group_size=8)
    for _ in range(300):
        place = chance.randrange(len(data))
        with contextlib.suppress(Refused):
            cut(data[:place] + bytes([chance.randrange(256)]) + data[place + 1 :], tmp_path)


def test_pieces_are_ipc_streams_that_hold_every_row(tmp_path: Path) -> None:
    found = cut(parquet(ROWS, row_group_size=70_000), tmp_path)
    assert rows_of(found).to_pylist() == ROWS.to_pylist()
    assert all(len(piece.body) < MIB + 64_000 for piece in found)
    assert len(found) < 20
    assert [piece.first_row for piece in found] == [1 + sum(p.rows for p in found[:n]) for n in range(len(found))]
    assert all((p.encoding, p.first_line) == ("arrow", 0) for p in found)
    assert list(tmp_path.iterdir()) == []


def test_what_is_spooled_has_no_name_and_goes_with_the_upload(tmp_path: Path) -> None:
    cutter = opened(tmp_path)
    assert list(cutter.feed(b"PAR1 and more")) == []
    assert list(tmp_path.iterdir()) == []
    assert cutter.resume_point() is None
    cutter.close()
    cutter.close()


@pytest.mark.parametrize("data", [b"", parquet(ROWS[:0])])
def test_an_upload_without_rows_is_one_piece_with_none(data: bytes, tmp_path: Path) -> None:
    (found,) = cut(data, tmp_path)
    assert found.rows == 0
    assert rows_of([found]).column_names == ["id", "name", "note"]


def test_another_schema_is_refused_by_name_and_type(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="lacks the column 'name'"):
        cut(parquet(ROWS.select(["id", "note"])), tmp_path)
    wider = ROWS.append_column("colour", ROWS["name"])
    with pytest.raises(Invalid, match="'colour', which the table does not know"):
        cut(parquet(wider), tmp_path)
    nested = pa.table({"id": [{"x": 1}], "name": [[1]]})
    with pytest.raises(Invalid, match="'id' is struct<x: int64>, the table has int64; 'name' is list"):
        cut(parquet(nested), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_unknown_columns_are_left_out_where_they_are_ignored(tmp_path: Path) -> None:
    wider = ROWS.append_column("colour", ROWS["name"])
    assert rows_of(cut(parquet(wider), tmp_path, table(unknown_fields="ignore"))).column_names == ["id", "name", "note"]


@pytest.mark.parametrize(
    "damage", [lambda d: d[: len(d) // 2], lambda d: b"id,name\n1,a\n", lambda d: d[:-8] + b"\xff" * 8]
)
def test_what_is_not_parquet_is_refused(damage: Any, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be read as Parquet"):
        cut(damage(parquet(ROWS)), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_damage_in_the_middle_is_refused(tmp_path: Path) -> None:
    data = parquet(ROWS, compression="zstd")
    with pytest.raises(Invalid, match="cannot be read as Parquet"):
        cut(data[:5000] + bytes(50_000) + data[55_000:], tmp_path)


def test_a_row_over_the_limit_is_one_short_piece(tmp_path: Path) -> None:
    names = ["a", "b" * 5 * MIB, "c", "d" * 3 * MIB]
    found = cut(parquet(pa.table({"id": [1, 2, 3, 4], "name": names})), tmp_path)
    assert [(piece.rows, piece.encoding) for piece in found] == [
        (1, "arrow"),
        (1, "oversize"),
        (1, "arrow"),
        (1, "arrow"),
    ]
    assert found[1].first_row == 2
    assert len(found[1].body) == 64 << 10
    assert rows_of([found[0], *found[2:]])["id"].to_pylist() == [1, 3, 4]


def test_more_plain_bytes_than_allowed_are_refused(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array([1] * 300_000), "name": ["x" * 100] * 300_000})
    data = parquet(rows)
    assert len(data) < MIB
    with pytest.raises(TooLarge, match="5000000 bytes"):
        cut(data, tmp_path, max_plain_bytes=5_000_000)
    assert list(tmp_path.iterdir()) == []
