"""Avro container uploads."""

import contextlib
import io
import json
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pytest
import zstandard

from millrace.formats.avro_container import ContainerHeader, write_long
from millrace.formats.cut import CutPiece, PieceLimits, UploadOptions, open_cutter
from millrace.model.errors import Invalid, Refused, TooLarge
from millrace.model.table import Definition, TableDeclaration, define

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "x",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
ROWS = [{"id": n, "name": f"name {n * 7919}", "note": None if n % 3 else "x"} for n in range(40_000)]
SYNC = bytes(range(16))
SMALL = PieceLimits(piece_bytes=60_000, row_bytes=200_000, kept_bytes=100)


def table(**changes: Any) -> Definition:
    return define("t", TableDeclaration("x", SCHEMA, file_type="avro", **changes), 1)


def columns_table(*fields: dict[str, Any]) -> Definition:
    schema = {**SCHEMA, "fields": list(fields)}
    return define("t", TableDeclaration("x", schema, file_type="avro", unknown_fields="ignore"), 1)


def container(codec: str = "null", schema: Any = None, rows: Any = None, interval: int = 16_000) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema or SCHEMA, ROWS if rows is None else rows, codec, interval, sync_marker=SYNC)
    return out.getvalue()


def cut(data: bytes, step: int = 65_536, limits: PieceLimits = SMALL, **options: Any) -> list[CutPiece]:
    cutter = open_cutter(table(), UploadOptions(**options), limits=limits)
    pieces = (data[at : at + step] for at in range(0, len(data), step))
    return [*(found for piece in pieces for found in cutter.feed(piece)), *cutter.finish()]


def rows_of(cuts: list[CutPiece]) -> list[Any]:
    return [row for piece in cuts for row in fastavro.reader(io.BytesIO(piece.body))]


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_pieces_are_container_files_that_hold_every_row(codec: str) -> None:
    found = cut(container(codec))
    assert rows_of(found) == ROWS
    assert [piece.first_row for piece in found] == [1 + sum(p.rows for p in found[:n]) for n in range(len(found))]
    assert len(found) > 5
    assert all(len(piece.body) < SMALL.piece_bytes + 1000 for piece in found)
    assert all((piece.encoding, piece.first_line) == ("avro", 0) for piece in found)


def repacked(codec: str, pack: Callable[[bytes], bytes]) -> bytes:
    """The rows with a codec that the writer's library lacks here."""
    data = container()
    header = data[: data.index(SYNC)].replace(b"\x08null", write_long(len(codec)) + codec.encode())
    blocks = b""
    for block in fastavro.block_reader(io.BytesIO(data)):
        packed = pack(block.bytes_.read())
        blocks += write_long(block.num_records) + write_long(len(packed)) + packed + SYNC
    return header + SYNC + blocks


def snap(plain: bytes) -> bytes:
    return bytes(pa.compress(plain, codec="snappy", asbytes=True)) + zlib.crc32(plain).to_bytes(4, "big")


@pytest.mark.parametrize(("codec", "pack"), [("snappy", snap), ("zstandard", zstandard.compress)])
def test_other_codecs_are_read(codec: str, pack: Callable[[bytes], bytes]) -> None:
    assert rows_of(cut(repacked(codec, pack))) == ROWS


def test_a_wrong_checksum_is_refused() -> None:
    with pytest.raises(Invalid, match=r"block 1\..*checksum"):
        cut(repacked("snappy", lambda plain: snap(plain)[:-4] + bytes(4)))


def test_the_writers_name_for_its_record_does_not_matter() -> None:
    data = container(schema={**SCHEMA, "name": "Other", "namespace": "com.example"}, rows=ROWS[:10])
    (found,) = cut(data)
    assert list(fastavro.reader(io.BytesIO(found.body), fastavro.parse_schema(SCHEMA))) == ROWS[:10]


def test_pieces_do_not_depend_on_how_the_bytes_arrive() -> None:
    data = container("deflate")
    assert cut(data, 977) == cut(data, len(data))


def test_resuming_behind_any_piece_gives_the_remaining_pieces() -> None:
    data = container("deflate")
    cutter = open_cutter(table(), UploadOptions(), limits=SMALL)
    cuts, points = [], []
    for source in (cutter.feed(data), cutter.finish()):
        for piece in source:
            cuts.append(piece)
            points.append(json.loads(json.dumps(cutter.resume_point())))
    for number, point in enumerate(points):
        again = open_cutter(table(), UploadOptions(), limits=SMALL, resume=point)
        assert [*again.feed(data[point["offset"] :]), *again.finish()] == cuts[number + 1 :]


def test_a_block_too_long_for_a_piece_is_split_between_rows() -> None:
    rows = [*ROWS[:5000], {"id": -1, "name": "y" * 300_000, "note": None}, *ROWS[5000:10_000]]
    cutter, found, points = open_cutter(table(), UploadOptions(), limits=SMALL), [], []
    for piece in cutter.feed(container(rows=rows, interval=10_000_000)):
        found.append(piece)
        points.append(cutter.resume_point())
    assert list(cutter.finish()) == []
    assert sum(piece.rows for piece in found) == len(rows)
    odd = [piece for piece in found if piece.oversize]
    assert [(piece.first_row, piece.rows, len(piece.body)) for piece in odd] == [(5001, 1, 100)]
    assert rows_of([piece for piece in found if not piece.oversize]) == ROWS[:10_000]
    assert all(len(piece.body) < SMALL.piece_bytes + 1000 for piece in found)
    assert [point is None for point in points] == [True] * (len(found) - 1) + [False]


@pytest.mark.parametrize("data", [b"", container(rows=[])])
def test_an_upload_without_rows_is_one_piece_with_none(data: bytes) -> None:
    (found,) = cut(data)
    assert found.rows == 0
    assert rows_of([found]) == []


def test_missing_unknown_and_unresolvable_columns_are_refused_by_name() -> None:
    def written(*fields: tuple[str, Any]) -> bytes:
        schema = {"type": "record", "name": "x", "fields": [{"name": name, "type": kind} for name, kind in fields]}
        return container(schema=schema, rows=[])

    with pytest.raises(Invalid, match="lacks the column 'name'"):
        cut(written(("id", "long")))
    with pytest.raises(Invalid, match="'colour', which the table does not know"):
        cut(written(("id", "long"), ("name", "string"), ("colour", "string")))
    with pytest.raises(Invalid, match="column 'id' as string, the table has long"):
        cut(written(("id", "string"), ("name", "string")))
    assert cut(written(("name", "bytes"), ("id", ["null", "int"])))[0].rows == 0


STAMP_MS = {"type": "long", "logicalType": "timestamp-millis"}
UNION = ["null", "string", "int"]


@pytest.mark.parametrize(
    ("name", "avro", "said"),
    [
        ("name", UNION, "'name' is written as a union of 2 types"),
        ("note", {"type": "array", "items": UNION}, "writes column 'note' as array"),
        ("id", "lang", "is not valid"),
        ("id", {"size": 3}, "is not valid"),
    ],
)
def test_a_schema_that_no_row_could_be_read_by_is_refused(name: str, avro: Any, said: str) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
    fields = [*(field for field in fields if field["name"] != name), {"name": name, "type": avro}]
    with pytest.raises(Invalid, match=said):
        cut(ContainerHeader({**SCHEMA, "fields": fields}, "null", SYNC).framed("x"))


def test_unions_inside_a_column_and_bytes_that_are_decimals_are_refused() -> None:
    inner = {"type": "array", "items": "string"}
    definition = columns_table({"name": "a", "type": inner}, {"name": "b", "type": "bytes"})
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    for a, b, said in (({**inner, "items": UNION}, "bytes", "union of 2"), (inner, decimal, "'b' as decimal")):
        schema = {**SCHEMA, "fields": [{"name": "a", "type": a}, {"name": "b", "type": b}]}
        with pytest.raises(Invalid, match=said):
            list(open_cutter(definition, UploadOptions()).feed(ContainerHeader(schema, "null", SYNC).framed("x")))


@pytest.mark.parametrize(("depth", "letters"), [(300, "a"), (1, "\\ud800")])
def test_a_schema_that_cannot_be_handed_on_is_refused(depth: int, letters: str) -> None:
    avro: Any = "int"
    for _ in range(depth):
        avro = {"type": "array", "items": avro}
    odd = json.dumps({**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "?", "type": avro}]}).replace("?", letters)
    meta = write_long(11) + b"avro.schema" + write_long(len(odd)) + odd.encode()
    with pytest.raises(Invalid, match="Its schema is"):
        cut(b"Obj\x01\x02" + meta + b"\0" + SYNC, limits=SMALL)


def test_a_long_block_is_split_whatever_its_values_mean() -> None:
    definition = columns_table({"name": "id", "type": STAMP_MS}, {"name": "name", "type": "string"})
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "bytes"}]
    rows = [{"id": 10**15, "name": b"\xff" * 100} for _ in range(3000)]
    plain = container(schema={**SCHEMA, "fields": fields}, rows=rows, interval=1 << 20)
    header = ContainerHeader({**SCHEMA, "fields": definition.table.schema["fields"]}, "null", SYNC).framed("x")
    cutter = open_cutter(definition, UploadOptions(), limits=SMALL)
    found = [*cutter.feed(header + plain[plain.index(SYNC) + 16 :]), *cutter.finish()]
    assert sum(piece.rows for piece in found) == 3000
    assert len(found) > 1


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_flipped_octets_are_refused_or_read(codec: str) -> None:
    chance, data = Random(7), container(codec, rows=ROWS[:50], interval=400)
    small = PieceLimits(piece_bytes=300, row_bytes=250, kept_bytes=50)
    for _ in range(400):
        place = chance.randrange(len(data))
        with contextlib.suppress(Refused):
            cut(data[:place] + bytes([chance.randrange(256)]) + data[place + 1 :], limits=small)


def test_damaged_files_are_refused_with_the_block() -> None:
    data = container(rows=ROWS[:3000])
    assert data.count(SYNC) > 3
    second = data.index(SYNC, data.index(SYNC) + 16) + 16
    with pytest.raises(Invalid, match="not begin like an Avro container"):
        cut(b"\x7fELF what is this")
    with pytest.raises(Invalid, match="inside its Avro header"):
        cut(data[:40])
    with pytest.raises(Invalid, match="ends inside Avro block 2"):
        cut(data[: second + 100])
    with pytest.raises(Invalid, match=r"block 1\. Its sync mark"):
        cut(data[: second - 1] + b"?" + data[second:])
    with pytest.raises(Invalid, match=r"block 2\. It claims"):
        cut(data[:second] + write_long(5) + write_long(1 << 40) + data[second:])
    with pytest.raises(Invalid, match="codec is 'lzo'"):
        cut(data.replace(b"\x08null", b"\x06lzo"))
    deflated = container("deflate", rows=ROWS[:3000])
    first = deflated.index(SYNC) + 16
    with pytest.raises(Invalid, match=r"block 1\. It cannot be decompressed"):
        cut(deflated[: first + 5] + b"\xff" * 50 + deflated[first + 55 :])


def test_a_broken_off_file_gives_its_complete_blocks_first() -> None:
    data = container()
    cutter = open_cutter(table(), UploadOptions(), limits=SMALL)
    found = list(cutter.feed(data[:-100]))
    with pytest.raises(Invalid, match="ends inside Avro block"):
        found.extend(cutter.finish())
    rows = rows_of(found)
    assert len(rows) > 38_000
    assert rows == ROWS[: len(rows)]


def test_a_bomb_in_a_block_is_refused() -> None:
    rows = [{"id": n, "name": "z" * 1_000_000, "note": None} for n in range(70)]
    data = container("deflate", rows=rows, interval=1 << 30)
    assert len(data) < 1_000_000
    with pytest.raises(TooLarge, match="64 MiB"):
        cut(data)
    with pytest.raises(TooLarge, match="10000000 bytes"):
        cut(container("deflate", rows=rows), max_plain_bytes=10_000_000)
