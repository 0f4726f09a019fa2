"""An Avro container file in, the draft of its table out. Types are the writer's; rows are read to find the key only."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.read import LOGICAL_READERS

from millrace.formats.avro_container import Block, BlockReader, ContainerHeader
from millrace.formats.avro_types import fields_of
from millrace.infer.draft import Draft, Drafted, usable, with_key
from millrace.infer.keys import KeyFinder, may_be_key
from millrace.infer.sampling import plain_bytes
from millrace.model.columns import Column, logical_type, parse_columns
from millrace.model.errors import Invalid
from millrace.model.stored_types import Avro

READ_BYTES = 256 << 20
_HEAD_ROWS = 100_000
_BLOCKS_PER_STRIDE = 16


def draft_avro(path: Path, table: str) -> Drafted:
    reader = BlockReader(f"The file {path.name!r:.120}", lambda header: None)
    watch, rows = KeyFinder(), 0
    for block in _spaced(_blocks(path, reader)):
        assert reader.header is not None
        keyable = [column for column in _columns(reader.header)[0] if may_be_key(column.avro)]
        watch.add(_arrays(keyable, reader.header, block), block.rows)
        rows += block.rows
    if reader.header is None:
        raise Invalid(f"{path.name} ends inside its Avro header.", remedy="Get the whole file.")
    columns, left_out = _columns(reader.header)
    return Drafted(with_key(Draft(table, "avro", columns, left_out=left_out), watch), rows)


def _blocks(path: Path, reader: BlockReader) -> Iterator[Block]:
    read = 0
    for piece in plain_bytes(path):
        yield from reader.feed(piece)
        read += len(piece)
        if read >= READ_BYTES:
            return


def _spaced(blocks: Iterator[Block]) -> Iterator[Block]:
    """The first blocks, then blocks at growing distances."""
    rows = taken = 0
    stride = 1
    for number, block in enumerate(blocks):
        if rows < _HEAD_ROWS:
            rows += block.rows
            yield block
        elif number % stride == 0:
            taken += 1
            stride *= 2 if taken % _BLOCKS_PER_STRIDE == 0 else 1
            yield block


def _columns(header: ContainerHeader) -> tuple[tuple[Column, ...], dict[str, str]]:
    fields = fields_of(header.schema)
    by_name = {field["name"]: field for field in fields}
    why_not = "is of a type that no table can hold"
    return usable([field["name"] for field in fields], lambda name: _column(by_name[name]) or why_not)


def _column(field: dict[str, Any]) -> Column | None:
    wanted = {name: field[name] for name in ("name", "type", "logicalType", "precision", "scale") if name in field}
    try:
        (column,) = parse_columns({"type": "record", "name": "one", "fields": [wanted]})
    except Invalid:
        return None
    return None if _is_foreign(column.avro) else column


def _is_foreign(avro: Avro) -> bool:
    """Whether the decoder turns a value into something that the table's type is not, such as a local timestamp."""
    if isinstance(avro, list):
        return any(map(_is_foreign, avro))
    if not isinstance(avro, dict):
        return False
    logical, kind = avro.get("logicalType"), avro.get("type")
    known = logical_type(avro) if isinstance(kind, str) else logical
    if logical is not None and known is None and f"{kind}-{logical}" in LOGICAL_READERS:
        return True
    inner = [avro.get(key) for key in ("items", "values")] + ([kind] if isinstance(kind, dict) else [])
    return any(map(_is_foreign, [*inner, *(field.get("type") for field in avro.get("fields") or [])]))


def _arrays(columns: list[Column], header: ContainerHeader, block: Block) -> dict[str, pa.Array]:
    body = header.framed("row") + header.framed_block(block.rows, block.plain)
    try:
        records = list(fastavro.reader(io.BytesIO(body)))
        return {column.name: _array([record[column.name] for record in records]) for column in columns}  # type: ignore[call-overload,index]
    except Exception:  # A decoder may raise anything on a damaged block. Then no key is found.
        return {}


def _array(values: list[Any]) -> pa.Array:
    if any(value is None for value in values):
        return pa.nulls(len(values))
    return pa.array([value if isinstance(value, int) else str(value) for value in values])
