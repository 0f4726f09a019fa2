"""Arrow tables as Avro container files, encoded column by column. The same table always gives the same bytes.

Every value becomes a stretch of bytes. A record is the concatenation of its fields' stretches, for all rows at once."""

import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

BLOCK_ROWS = 16_384
_MAGIC = b"Obj\x01"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_MOST_BYTES_OF_A_LONG = 10


@dataclass(frozen=True, slots=True)
class Stretches:
    """One value per row: row n is `data[offsets[n]:offsets[n + 1]]`."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return np.diff(self.offsets)


def container(table: pa.Table, name: str, sync: bytes) -> Iterator[bytes]:
    """The file's bytes, block by block. `sync` are 16 bytes derived from the content."""
    schema = json.dumps(avro_schema(table.schema, name), separators=(",", ":")).encode()
    entries = [(b"avro.codec", b"deflate"), (b"avro.schema", schema)]
    header = b"".join(_text(key) + _text(value) for key, value in entries)
    yield _MAGIC + _long(len(entries)) + header + _long(0) + sync
    for batch in table.to_batches(BLOCK_ROWS):
        if batch.num_rows:
            packed = _deflated(_record(batch.columns, batch.num_rows).data)
            yield _long(batch.num_rows) + _long(len(packed)) + packed + sync


def avro_schema(schema: pa.Schema, name: str) -> dict[str, Any]:
    """Every column may be null: a deleted row has nothing but its key."""
    return {"type": "record", "name": avro_names([name])[0], "fields": _fields(list(schema), "")}


def avro_names(names: Sequence[str]) -> list[str]:
    """Names that Avro allows. Names that would become equal get a number."""
    found: list[str] = []
    for name in names:
        plain = name if _NAME.fullmatch(name) else "_" + re.sub(r"[^A-Za-z0-9_]", "_", name, flags=re.ASCII)
        same = sum(1 for one in found if one == plain or one.startswith(f"{plain}__"))
        found.append(f"{plain}__{same}" if same else plain)
    return found


def _fields(fields: Sequence[pa.Field], inside: str) -> list[dict[str, Any]]:
    return [
        {
            "name": plain,
            "type": ["null", _type(field.type, f"{inside}_{plain}")],
            **({} if plain == field.name else {"doc": field.name}),
        }
        for plain, field in zip(avro_names([field.name for field in fields]), fields, strict=True)
    ]


def _type(kind: pa.DataType, inside: str) -> Any:
    for is_it, avro_type in _PLAIN:
        if is_it(kind):
            return avro_type
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_map(kind):
        return {"type": "map", "values": ["null", _type(kind.item_type, f"{inside}_v")]}
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", _type(kind.value_type, f"{inside}_i")]}
    if pa.types.is_struct(kind):
        return {"type": "record", "name": f"r{inside}", "fields": _fields(list(kind), inside)}
    raise pa.ArrowNotImplementedError(f"Avro has no {kind}")


_PLAIN: list[tuple[Any, Any]] = [
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int32, "int"),
    (pa.types.is_int64, "long"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_string, "string"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_date32, {"type": "int", "logicalType": "date"}),
    (pa.types.is_timestamp, {"type": "long", "logicalType": "timestamp-micros"}),
]


def _record(columns: Sequence[pa.Array], rows: int) -> Stretches:
    return _joined([_nullable(column) for column in columns], rows)


def _nullable(column: pa.Array) -> Stretches:
    """The branch of the union, then the value where there is one."""
    valid = np.asarray(column.is_valid())
    values = _values(column.drop_null() if column.null_count else column)
    lengths = np.zeros(len(column), np.int64)
    lengths[valid] = values.lengths
    branch = _equally_long(np.where(valid, 2, 0).astype(np.uint8), 1)
    return _joined([branch, Stretches(values.data, _offsets(lengths))], len(column))


def _values(column: pa.Array) -> Stretches:
    """The values of a column without nulls."""
    kind = column.type
    if pa.types.is_nested(kind):
        return _nested(column)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _with_length(_texts(column))
    if pa.types.is_decimal(kind):
        return _with_length(_decimals(column))
    if pa.types.is_boolean(kind):
        return _equally_long(np.asarray(column.cast(pa.uint8())), 1)
    if pa.types.is_floating(kind):
        return _equally_long(np.ascontiguousarray(np.asarray(column)).view(np.uint8), kind.bit_width // 8)
    return _longs(np.asarray(column.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())))


def _nested(column: pa.Array) -> Stretches:
    if pa.types.is_map(column.type):
        return _blocks(column, lambda first, count: _entries(column, first, count))
    if pa.types.is_list(column.type):
        return _blocks(column, lambda first, count: _nullable(column.values.slice(first, count)))
    return _record(column.flatten(), len(column))


def _entries(column: pa.Array, first: int, count: int) -> Stretches:
    keys = _values(column.keys.slice(first, count))
    return _joined([keys, _nullable(column.items.slice(first, count))], count)


def _blocks(column: pa.Array, items: Any) -> Stretches:
    """The number of items, the items, and a closing zero. An empty list is only the zero."""
    at = np.asarray(column.offsets).astype(np.int64)
    inner = items(int(at[0]), int(at[-1] - at[0]))
    counts = np.diff(at)
    sizes = _longs(counts)
    sizes = Stretches(
        sizes.data[np.repeat(counts > 0, sizes.lengths)], _offsets(np.where(counts > 0, sizes.lengths, 0))
    )
    ends = _equally_long(np.zeros(len(counts), np.uint8), 1)
    return _joined([sizes, Stretches(inner.data, inner.offsets[at - at[0]]), ends], len(counts))


def _texts(column: pa.Array) -> Stretches:
    _, offsets, data = column.buffers()
    at = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    raw = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    return Stretches(raw[at[0] : at[-1]], at - at[0])


def _decimals(column: pa.Array) -> Stretches:
    """Sixteen bytes each, big-endian: Avro allows more bytes than a number needs."""
    wide = column.cast(pa.decimal128(38, column.type.scale))
    cells = np.frombuffer(wide.buffers()[1] or b"", np.uint8).reshape(-1, 16)[wide.offset : wide.offset + len(wide)]
    return _equally_long(np.ascontiguousarray(cells[:, ::-1]).reshape(-1), 16)


def _with_length(values: Stretches) -> Stretches:
    return _joined([_longs(values.lengths), values], len(values.offsets) - 1)


def _longs(values: npt.NDArray[Any]) -> Stretches:
    """Zig-zag, then seven bits to a byte."""
    signed = values.astype(np.int64)
    left = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    steps = np.array([1 << (7 * n) for n in range(1, _MOST_BYTES_OF_A_LONG)], np.uint64)
    lengths = 1 + np.searchsorted(steps, left, side="right").astype(np.int64)
    offsets = _offsets(lengths)
    data = np.empty(int(offsets[-1]), np.uint8)
    for place in range(int(lengths.max(initial=0))):
        here = lengths > place
        bits = (left[here] >> np.uint64(7 * place)) & np.uint64(0x7F)
        more = np.where(lengths[here] > place + 1, 0x80, 0)
        data[offsets[:-1][here] + place] = bits.astype(np.uint8) | more.astype(np.uint8)
    return Stretches(data, offsets)


def _joined(parts: Sequence[Stretches], rows: int) -> Stretches:
    """Concatenates the parts' stretches row by row."""
    offsets = _offsets(sum((part.lengths for part in parts), np.zeros(rows, np.int64)))
    data = np.empty(int(offsets[-1]), np.uint8)
    start = offsets[:-1].copy()
    for part in parts:
        lengths = part.lengths
        moved = np.repeat(start - part.offsets[:-1], lengths) + np.arange(part.offsets[0], part.offsets[-1])
        data[moved] = part.data[part.offsets[0] : part.offsets[-1]]
        start += lengths
    return Stretches(data, offsets)


def _equally_long(data: npt.NDArray[np.uint8], width: int) -> Stretches:
    return Stretches(data, np.arange(0, len(data) + 1, width, dtype=np.int64))


def _offsets(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def _deflated(data: npt.NDArray[np.uint8]) -> bytes:
    """Raw deflate, as Avro wants it: without the frame of zlib."""
    packer = zlib.compressobj(1, wbits=-15)
    return packer.compress(data.tobytes()) + packer.flush()


def _long(value: int) -> bytes:
    return _longs(np.array([value])).data.tobytes()


def _text(value: bytes) -> bytes:
    return _long(len(value)) + value
