"""A chunk that is an Avro container file: records read by the writer's schema, then judged column by column."""

import io
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
from fastavro.schema import expand_schema

from millrace.formats.matching import unknown
from millrace.model.chunk import ChunkHeader
from millrace.model.columns import DELETED_COLUMN, Avro, Column, parse_columns
from millrace.model.errors import Invalid
from millrace.model.fields import assigned
from millrace.validate.from_arrow import parse_table
from millrace.validate.json_values import as_text
from millrace.validate.parsed import Parsed, Undecodable
from millrace.validate.reading import Reading
from millrace.validate.rescue import value_parts

_CLOCK = {"time-millis": pa.time32("ms"), "time-micros": pa.time64("us")}


def parse_avro(header: ChunkHeader, body: bytes, reading: Reading) -> Parsed:
    try:
        # fastavro raises whatever its decoders do: a broken file shows as any of IndexError, KeyError, EOFError, zlib.error …
        reader = fastavro.reader(io.BytesIO(body))
        schema = reader.writer_schema
        records = list(reader)
    except Exception as error:
        raise Undecodable(f"The chunk cannot be read as an Avro file: {error or type(error).__name__}") from error
    try:
        expanded: Avro = expand_schema(schema)
        table = _table(expanded["fields"], records, reading)
        others = _others(expanded["fields"], records, reading)
    except (Invalid, pa.ArrowException, KeyError, TypeError) as error:
        raise Undecodable(f"The Avro file's schema cannot be read by this table: {error}") from error
    return parse_table(table, reading, others)


def _table(fields: list[Avro], records: list[Any], reading: Reading) -> pa.Table:
    """The columns the table knows, in the writer's types."""
    names = assigned((field["name"] for field in fields), reading.columns).values()
    known = [field for field in fields if field["name"] in names]
    arrays = {}
    # One by one, because a writer's names may differ only in case.
    for field in known:
        (column,) = parse_columns({"type": "record", "name": "chunk", "fields": [field]})
        arrays[column.name] = _array(column, [record[column.name] for record in records])
    if any(field["name"] == DELETED_COLUMN for field in fields):
        arrays[DELETED_COLUMN] = _texts([record[DELETED_COLUMN] for record in records])
    return pa.table(arrays) if arrays else pa.table({"": pa.nulls(len(records))})


def _texts(values: list[Any]) -> pa.Array:
    return pa.array([None if value is None else as_text(value) for value in values], pa.string())


def _others(fields: list[Avro], records: list[Any], reading: Reading) -> dict[str, pa.Array]:
    names = unknown((field["name"] for field in fields), reading.columns) if reading.rescues else []
    return {name: value_parts([record[name] for record in records]) for name in names}


def _array(column: Column, values: list[Any]) -> pa.Array:
    if column.logical in _CLOCK:
        return pa.array(values, _CLOCK[column.logical])
    if column.logical == "uuid":
        values = [str(value) if isinstance(value, UUID) else value for value in values]
    return pa.array(values, column.arrow)
