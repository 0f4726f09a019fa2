"""Two hundred files that want to harm whoever decodes them: bombs, lying lengths, deep nesting, damaged files."""

import gzip
import io
import json
import random
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from millrace.formats.avro_container import MAGIC, write_long

COUNT = 200
SYNC = bytes(16)
MIB = 1 << 20
COLUMNS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "name", "type": ["null", "string"], "default": None},
]
DECLARATION: dict[str, Any] = {
    "schema": {"type": "record", "name": "notes", "fields": COLUMNS},
    "primary_key": ["id"],
    "unknown_fields": "ignore",
}


@dataclass(frozen=True, slots=True)
class HostileFile:
    """`refused`: it must be; others may turn out to be valid files."""

    name: str
    format: str
    data: bytes
    refused: bool = True


def hostile_files() -> list[HostileFile]:
    made = [*_parquet(), *_avro(), *_compressed()]
    return [*made, *_fuzzed(COUNT - len(made))]


def normal_parquet(rows: int = 100) -> bytes:
    return _written(pa.table({"id": list(range(rows)), "name": [f"name {n}" for n in range(rows)]}))


def _written(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


def _parquet() -> Iterator[HostileFile]:
    long = pa.table({"id": [1], "name": ["x" * (150 * MIB)]})
    for codec in ("zstd", "gzip", "snappy"):
        bomb = _written(long, compression=codec, use_dictionary=False, write_statistics=False)
        yield HostileFile(f"one value of 150 MiB, {codec}", "parquet", bomb)
    del long
    same = pa.table({"id": pa.nulls(12_000_000, pa.int64())})
    yield HostileFile("twelve million nulls", "parquet", _written(same, row_group_size=12_000_000))
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 200_000, pa.int32()), ["y" * 4096])
    yield HostileFile(
        "a long value 200,000 times", "parquet",
        _written(pa.table({"id": pa.nulls(200_000, pa.int64()), "name": repeated}), row_group_size=200_000),
    )  # fmt: skip
    rows = 4_000_000
    yield HostileFile(
        "rows without columns of the table", "parquet", _written(pa.table({"other": pa.nulls(rows, pa.int8())}))
    )
    inner = pa.ListArray.from_arrays(pa.array([0, 60_000_000], pa.int32()), pa.nulls(60_000_000, pa.int8()))
    yield HostileFile("a list of sixty million nulls", "parquet", _written(pa.table({"id": [1], "name": inner})))
    normal = normal_parquet()
    for levels in (40, 200, 900):
        kind: Any = pa.int64()
        for _ in range(levels):
            kind = pa.struct([("x", kind)])
        try:
            deep = _written(pa.table({"id": pa.array([1]), "deep": pa.nulls(1, kind)}))
        except (pa.ArrowException, OSError, RecursionError):
            continue
        yield HostileFile(f"{levels} levels of structs", "parquet", deep, refused=False)
    wide = pa.table({"id": [1], **{f"c{n}": [1] for n in range(3000)}})
    yield HostileFile("three thousand columns", "parquet", _written(wide), refused=False)
    groups = pa.table({"id": list(range(3000))})
    yield HostileFile("three thousand row groups", "parquet", _written(groups, row_group_size=1), refused=False)
    for length in (0, 1, 8, len(normal), 1 << 20, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        footer = normal[:-8] + struct.pack("<I", length) + b"PAR1"
        yield HostileFile(f"a footer of {length} bytes, it says", "parquet", footer)
    for size in (0, 4, 8, 12, len(normal) // 2, len(normal) - 1, len(normal) - 4, len(normal) - 9):
        yield HostileFile(f"cut after {size} bytes", "parquet", normal[:size], refused=size > 0)
    yield HostileFile("only a magic", "parquet", b"PAR1PAR1")
    yield HostileFile("encrypted, it says", "parquet", normal[:-4] + b"PARE")


def _avro_file(schema: Any, *blocks: tuple[int, bytes], codec: str = "null", sizes: int | None = None) -> bytes:
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    meta = b"".join(_sized(part) for part in (b"avro.schema", text, b"avro.codec", codec.encode()))
    body = b"".join(
        write_long(rows) + write_long(len(data) if sizes is None else sizes) + data + SYNC for rows, data in blocks
    )
    return MAGIC + write_long(2) + meta + b"\0" + SYNC + body


def _sized(data: bytes) -> bytes:
    return write_long(len(data)) + data


def _record(*fields: dict[str, Any], name: str = "notes") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [COLUMNS[0], *fields]}


def _deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, wbits=-15)
    return packer.compress(data) + packer.flush()


def _avro() -> Iterator[HostileFile]:
    row = write_long(1)
    plain = _record()
    zeros = bytes(100 * MIB)
    for codec, packed in (("deflate", _deflated(zeros)), ("zstandard", zstandard.compress(zeros))):
        yield HostileFile(f"a block of 100 MiB, {codec}", "avro", _avro_file(plain, (1, packed), codec=codec))
    snapped = pa.compress(zeros, "snappy", asbytes=True) + struct.pack(">I", zlib.crc32(zeros))
    yield HostileFile("a block of 100 MiB, snappy", "avro", _avro_file(plain, (1, snapped), codec="snappy"))
    small = _deflated(bytes(4 * MIB))
    many = _avro_file(plain, *[(4 * MIB, small)] * 40, codec="deflate")
    yield HostileFile("forty blocks of 4 MiB", "avro", many)
    yield HostileFile(
        "a length of snappy that lies", "avro", _avro_file(plain, (1, b"\xff\xff\xff\xff\x7f" + row), codec="snappy")
    )
    nothing = {"type": "record", "name": "notes", "fields": [{"name": "id", "type": "null"}]}
    yield HostileFile("a billion rows without bytes", "avro", _avro_file(nothing, *[(1_000_000, b"")] * 1000))
    nulls = [{"name": f"n{number}", "type": "null"} for number in range(20_000)]
    yield HostileFile("rows of twenty thousand nulls", "avro", _avro_file(_record(*nulls), (100_000, row * 100_000)))
    for items in ("null", {"type": "fixed", "name": "f", "size": 0}, {"type": "record", "name": "e", "fields": []}):
        bomb = {"name": "bomb", "type": {"type": "array", "items": items}}
        data = row + write_long(1 << 40) + write_long(0)
        yield HostileFile(f"an array of 2^40 times {str(items)[:30]}", "avro", _avro_file(_record(bomb), (1, data)))
    bomb = {"name": "bomb", "type": {"type": "map", "values": {"type": "record", "name": "m", "fields": nulls}}}
    yield HostileFile("a map of records of nulls", "avro", _avro_file(_record(bomb), (1, row)))
    node = {"type": "record", "name": "node", "fields": [{"name": "next", "type": ["null", "node"]}]}
    chain = row + b"\x02" * MIB + b"\0"
    yield HostileFile(
        "a chain of a million nodes", "avro", _avro_file(_record({"name": "n", "type": node}), (1, chain))
    )
    laugh: Any = {"type": "record", "name": "l0", "fields": [{"name": "x", "type": "long"}]}
    fields = [{"name": "l0", "type": laugh}]
    for level in range(1, 40):
        twice = [{"name": part, "type": f"l{level - 1}"} for part in "ab"]
        fields.append({"name": f"l{level}", "type": {"type": "record", "name": f"l{level}", "fields": twice}})
    yield HostileFile("two to the fortieth types", "avro", _avro_file(_record(*fields), (1, row)))
    for levels in (300, 50_000, 400_000):
        deep = b'{"type":"record","name":"notes","fields":[{"name":"id","type":' + b'{"type":' * levels
        yield HostileFile(
            f"a schema {levels} deep", "avro", _avro_file(deep + b'"long"' + b"}" * (levels + 3), (1, row))
        )
    yield HostileFile("a header of 2^60 entries", "avro", MAGIC + write_long(1 << 60) + bytes(2 * MIB))
    yield HostileFile(
        "a header that does not end", "avro", MAGIC + (write_long(1) + _sized(b"a") + _sized(b"b" * 1000)) * 3000
    )
    yield HostileFile("a number that does not end", "avro", MAGIC + b"\xff" * 4096)
    for size in (1 << 31, 1 << 40, (1 << 62) - 1):
        yield HostileFile(f"a block of {size} bytes, it says", "avro", _avro_file(plain, (1, row), sizes=size))
        yield HostileFile(f"a block of {size} rows, it says", "avro", _avro_file(plain, (size, row)))
        text = row + write_long(1) + write_long(size)
        yield HostileFile(
            f"a text of {size} bytes, it says", "avro", _avro_file(_record(COLUMNS[1]), (1, text + bytes(5 * MIB)))
        )
    whole = _avro_file(plain, (1, row))
    for size in (3, 20, len(whole) // 2, len(whole) - 17, len(whole) - 1):
        yield HostileFile(f"cut after {size} bytes", "avro", whole[:size])
    yield HostileFile("another sync mark", "avro", whole[:-1] + b"x")
    yield HostileFile("an unknown codec", "avro", _avro_file(plain, (1, row), codec="x" * 1000))


def _compressed() -> Iterator[HostileFile]:
    zeros = bytes(100 * MIB)
    text = b"id,name\n" + b"1,x\n" * (25 * MIB)
    for name, data in (("zeros", zeros), ("rows", text)):
        yield HostileFile(f"100 MiB of {name}, gzip", "csv", gzip.compress(data, 6))
        yield HostileFile(f"100 MiB of {name}, zstd", "csv", zstandard.compress(data, 3))
    yield HostileFile("zeros in gzip in gzip", "csv", gzip.compress(gzip.compress(zeros)), refused=False)
    yield HostileFile("Parquet of zeros, gzip", "parquet", gzip.compress(zeros))
    yield HostileFile("Avro of zeros, zstd", "avro", zstandard.compress(zeros))
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(b"id\n1\n")
    window = frame[:4] + b"\x00\xb8" + frame[6:]
    yield HostileFile("a window of zstd of 8 GiB", "csv", window)
    for kind, data in (("gzip", gzip.compress(text[: 5 * MIB])), ("zstd", zstandard.compress(text[: 5 * MIB]))):
        for share in (0.1, 0.5, 0.9):
            yield HostileFile(f"{kind}, cut at {share}", "csv", data[: int(len(data) * share)])
        yield HostileFile(f"{kind}, then noise", "csv", data + b"\x93noise" * 1000)
    yield HostileFile("a hundred thousand empty members", "csv", gzip.compress(b"") * 100_000, refused=False)
    yield HostileFile("a line of 50 MiB", "csv", gzip.compress(b"id,name\n1," + b"x" * (50 * MIB)), refused=False)


def _fuzzed(count: int) -> Iterator[HostileFile]:
    """Valid files with some bytes changed; every second one where its lengths are."""
    chance = random.Random(12)
    out = io.BytesIO()
    rows = [{"id": number, "name": f"name {number}"} for number in range(200)]
    fastavro.writer(out, {"type": "record", "name": "notes", "fields": COLUMNS}, rows, "deflate")
    csv = gzip.compress(b"id,name\n" + b"".join(b"%d,name\n" % number for number in range(5000)))
    valid = [("parquet", normal_parquet(200)), ("avro", out.getvalue()), ("csv", csv), ("parquet", _written(
        pa.table({"id": list(range(2000)), "name": ["same"] * 2000}), compression="zstd", data_page_size=256))]  # fmt: skip
    for number in range(count):
        kind, data = valid[number % len(valid)]
        octets = bytearray(data)
        first = len(octets) - min(len(octets), 600) if number % 2 and kind == "parquet" else 0
        for _ in range(chance.choice((1, 2, 8, 40))):
            octets[chance.randrange(first, len(octets))] = chance.choice(
                (0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256))
            )
        yield HostileFile(f"fuzzed {number}", kind, bytes(octets), refused=False)
