"""Delta tables that want to harm whoever reads them: bombs, lying lengths, deep nesting, huge dictionaries, damaged files."""

import base64
import io
import json
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millrace.lake.actions import AddFile, Metadata, Protocol
from millrace.lake.checkpoint import write_checkpoint
from millrace.lake.chunk_ids import NO_IDS
from millrace.lake.store import Store

MIB = 1 << 20
CHECKPOINT = f"_delta_log/{10:020}.checkpoint.parquet"
FIRST = f"_delta_log/{0:020}.json"
FIELDS = [("id", "long"), ("name", "string"), ("_version", "long"), ("_import", "string"), ("_row", "long")]
SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in FIELDS]}
)
PROTOCOL: dict[str, Any] = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
METADATA: dict[str, Any] = {
    "metaData": {"id": "x", "format": {"provider": "parquet"}, "schemaString": SCHEMA, "partitionColumns": []}
}


@dataclass(frozen=True, slots=True)
class HostileTable:
    """`objects` by their names below the table's root. `names`: what the reason must name. `listing`: instead of the true
    one. `sizes`: what the listing says of objects. `refused`: it must be; others may turn out to be valid tables."""

    what: str
    objects: dict[str, bytes]
    names: str = ""
    refused: bool = True
    listing: bytes | None = None
    sizes: dict[str, int] = field(default_factory=dict)


def hostile_tables(folder: Any) -> list[HostileTable]:
    return [*_checkpoints(folder), *_commits(), *_vectors(), *_listings()]


def commit(*actions: Any) -> bytes:
    return b"\n".join(action if isinstance(action, bytes) else json.dumps(action).encode() for action in actions)


def add(path: Any = "part.parquet", **more: Any) -> dict[str, Any]:
    plain = {"path": path, "size": 1000, "modificationTime": 0, "partitionValues": {}, "dataChange": True}
    return {"add": {**plain, **more}}


def first(*actions: Any) -> dict[str, bytes]:
    return {FIRST: commit(PROTOCOL, METADATA, *actions)}


def _parquet(columns: dict[str, Any], **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, **options)
    return out.getvalue()


def _adds(rows: int, **fields: Any) -> Any:
    plain: dict[str, Any] = {
        "path": pa.array(["p"] * rows),
        "size": pa.nulls(rows, pa.int64()).fill_null(1),
        "modificationTime": pa.nulls(rows, pa.int64()).fill_null(1),
    }
    columns = {**plain, **fields}
    return pa.StructArray.from_arrays(list(columns.values()), list(columns))


def own_checkpoint(folder: Any, files: int = 50) -> bytes:
    """As this platform writes them."""
    store = Store(folder)
    listed = [AddFile(f"part-{number}.parquet", 1000, 10, 0) for number in range(files)]
    write_checkpoint(store, 10, Protocol(), Metadata("x", SCHEMA, 0, {}), listed, NO_IDS)
    return store.read(CHECKPOINT)


def _checkpoints(folder: Any) -> Iterator[HostileTable]:
    def case(what: str, data: bytes, **more: Any) -> HostileTable:
        return HostileTable(f"checkpoint: {what}", {CHECKPOINT: data}, CHECKPOINT, **more)

    long = _adds(1, stats=pa.array(["x" * (150 * MIB)]))
    yield case(
        "150 MiB of statistics",
        _parquet({"add": long}, compression="zstd", use_dictionary=False, write_statistics=False),
    )
    repeated = pa.DictionaryArray.from_arrays(
        pa.array([0] * 200_000, pa.int32()), [json.dumps({"numRecords": 1, "x": "y" * 4096})]
    )
    yield case("long statistics 200,000 times", _parquet({"add": _adds(200_000, stats=repeated)}))
    paths = pa.array([f"p{number}" for number in range(60_000)])
    yield case("60,000 files", _parquet({"add": _adds(60_000, path=paths)}))
    yield case("a million rows of nothing", _parquet({"add": pa.nulls(1_000_000, _adds(1).type)}), refused=False)
    names = pa.ListArray.from_arrays(pa.array([0, 12_000_000], pa.int32()), pa.nulls(12_000_000, pa.string()))
    metadata = pa.StructArray.from_arrays(
        [pa.array(["x"]), pa.array([SCHEMA]), names], ["id", "schemaString", "partitionColumns"]
    )
    yield case("twelve million columns of partitions", _parquet({"metaData": metadata}))
    keys = pa.array([[(str(number), "v") for number in range(60_000)]], pa.map_(pa.string(), pa.string()))
    yield case("a hundred thousand values of partitions", _parquet({"add": _adds(1, partitionValues=keys)}))
    kind: Any = pa.int64()
    for _ in range(150):
        kind = pa.struct([("x", kind)])
    yield case("150 levels", _parquet({"add": _adds(1, partitionValues=pa.nulls(1, kind))}), refused=False)
    yield case("wrong types", _parquet({"add": pa.array([{"path": 7, "size": "x", "modificationTime": b"\xff"}])}))
    yield case("no struct", _parquet({"add": pa.array([1, 2])}))
    groups = _parquet({"add": _adds(2000)}, row_group_size=1)
    yield case("two thousand row groups", groups, refused=False)
    own = own_checkpoint(folder)
    for length in (0, len(own), 0x7FFFFFFF):
        yield case(f"a footer of {length} bytes, it says", own[:-8] + struct.pack("<I", length) + b"PAR1")
    for size in (0, 9, len(own) // 2):
        yield case(f"cut after {size} bytes", own[:size])
    yield HostileTable(
        "checkpoint: 70 MiB, listed as 9 bytes", {CHECKPOINT: bytes(70 * MIB)}, "", sizes={CHECKPOINT: 9}
    )
    chance = random.Random(7)
    for number in range(6):
        octets = bytearray(own)
        # Every second time only where the pages are.
        end = len(octets) // 2 if number % 2 else len(octets)
        for _ in range(chance.choice((1, 3, 20))):
            octets[chance.randrange(4, end)] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        yield case(f"fuzzed {number}", bytes(octets), refused=False)


def _commits() -> Iterator[HostileTable]:
    def case(what: str, *actions: Any, **more: Any) -> HostileTable:
        return HostileTable(f"commit: {what}", first(*actions), FIRST, **more)

    yield case("a line of 12 MiB", add("x" * (12 * MIB)))
    yield case("30 MiB", *[b'{"commitInfo":{"x":"' + b"y" * MIB + b'"}}'] * 30)
    yield HostileTable(
        "commit: 12 MiB, listed as 9 bytes",
        first(*[b'{"commitInfo":{"x":"' + b"y" * MIB + b'"}}'] * 12),
        sizes={FIRST: 9},
    )
    yield case("60,000 files", *[add(f"p{number}") for number in range(60_000)])
    yield case("many small lists", b'{"add":[' + b"[]," * 500_000 + b"[]]}")
    yield case("100,000 deep", b'{"add":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    yield case("statistics 100,000 deep", add(stats="[" * 100_000 + "]" * 100_000))
    yield case("noise", random.Random(3).randbytes(1000).replace(b"\n", b""))
    for what, action in {
        "a path that is a number": add(5),
        "a path that leaves": add("../../../etc/passwd"),
        "a path that leaves, encoded": add("%2e%2e/%2e%2e/x"),
        "a path with a null": add("a%00b"),
        "a size that is a text": add(size="x"),
        "a negative size": add(size=-1),
        "a size of 1e300": add(size=1e300),
        "rows that are a text": add(stats='{"numRecords":"x"}'),
        "statistics that are a list": add(stats="[1]"),
        "no add": {"add": None},
        "a list": [1],
        "partitions that are numbers": add(partitionValues={"a": 1}),
        "no schema": {"metaData": {"id": "x"}},
    }.items():
        yield case(what, action)
    yield HostileTable("commit: nothing", {FIRST: b""}, FIRST)
    large = {**first(add("huge.parquet", size=1)), "huge.parquet": bytes(20 * MIB)}
    yield HostileTable("a file of 20 MiB, declared as 1 byte", large, "huge.parquet")
    yield HostileTable("a file of 2 GiB, it says", first(add(size=2 << 30)))


def _vectors() -> Iterator[HostileTable]:
    data = _parquet({"id": [1, 2, 3], "name": ["a", "b", "c"], "_version": [1, 1, 1]})

    def case(what: str, location: str, size: int, cardinality: int, storage: str = "i", **more: Any) -> HostileTable:
        offset = {"offset": more.pop("offset")} if "offset" in more else {}
        names = more.pop("names", "Deletion vector")
        vector = {"storageType": storage, "pathOrInlineDv": location, "sizeInBytes": size, "cardinality": cardinality}
        path = f"v{abs(hash(what))}.parquet"
        listed = add(path, size=len(data), stats='{"numRecords":3}', deletionVector={**vector, **offset})
        return HostileTable(f"vector: {what}", {**first(listed), path: data, **more}, names)

    def inline(what: str, bitmap: bytes, cardinality: int) -> HostileTable:
        body = struct.pack("<iqI", 1681511377, 1, 0) + bitmap
        return case(what, _z85(body), len(body), cardinality)

    everything = struct.pack("<I", 12347 | (65535 << 16)) + b"\xff" * 8192
    everything += b"".join(struct.pack("<HH", number, 65535) for number in range(65536))
    at = len(everything) + 4 * 65536
    everything += b"".join(struct.pack("<I", at + 6 * number) for number in range(65536))
    everything += struct.pack("<HHH", 1, 0, 65535) * 65536
    yield inline("all of 2^32 rows, it says", everything, 1 << 32)
    yield inline("all of 2^32 rows, three it says", everything, 3)
    yield inline("a bitmap of 65536 containers that are not there", struct.pack("<II", 12346, 65536), 3)
    yield inline("2^31 containers", struct.pack("<II", 12346, 1 << 31), 3)
    unsorted = struct.pack("<IIHHI", 12346, 1, 0, 2, 16) + struct.pack("<HHH", 3, 2, 1)
    yield inline("positions out of order", unsorted, 3)
    yield inline("a container far away", struct.pack("<IIHHI", 12346, 1, 0, 2, 1 << 31), 3)
    yield case("noise", "~~~~~", 4, 3)
    yield case("another storage", "s3://elsewhere/x", 4, 3, "p")
    name = "0" * 20
    file = "deletion_vector_00000000-0000-0000-0000-000000000000.bin"
    yield case("a file behind its end", name, 1 << 20, 3, "u", offset=1 << 40, **{file: b"\1" * 99})
    yield case("a negative offset", name, 40, 3, "u", offset=-5, names=FIRST, **{file: b"\1" * 99})


def _listings() -> Iterator[HostileTable]:
    def case(what: str, listing: bytes, names: str = "_delta_log") -> HostileTable:
        return HostileTable(f"listing: {what}", {}, names, listing=listing)

    yield case("no XML", b"<ListBucketResult><Contents>")
    elements = b"<ListBucketResult>" + b"<a/>" * (3 * MIB) + b"</ListBucketResult>"
    yield case("twelve MiB of empty elements", elements, "answered with more than")
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    entities = f'<!DOCTYPE l [<!ENTITY l0 "ha">{laughs}]><ListBucketResult><Contents><Key>&l9;</Key></Contents>'
    yield case("a billion laughs", f"{entities}</ListBucketResult>".encode())
    yield case("a size that is none", _entry("x", "many"))
    yield case("a very long name", _entry("x" * MIB, "1"))


def _entry(name: str, size: str) -> bytes:
    facts = f"<Key>{name}</Key><Size>{size}</Size><LastModified>2026-01-01T00:00:00Z</LastModified>"
    return f"<ListBucketResult><Contents>{facts}</Contents></ListBucketResult>".encode()


def _z85(data: bytes) -> str:
    z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    b85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
    padded = data + bytes(-len(data) % 4)
    return base64.b85encode(padded).translate(bytes.maketrans(b85, z85)).decode()
