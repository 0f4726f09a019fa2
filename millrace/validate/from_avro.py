"""A chunk that is an Avro container file: records read by the writer's schema, then judged column by column."""

import io
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
from fastavro.schema import expand_schema

from millrace.model.chunk import ChunkHeader
from millrace.model.columns import Avro, Column, parse_columns
from millrace.model.errors import Invalid
from millrace.model.table import Definition
from millrace.validate.from_arrow import parse_table
from millrace.validate.parsed import Parsed, Undecodable

_CLOCK = {"time-millis": pa.time32("ms"), "time-micros": pa.time64("us")}


def parse_avro(header: ChunkHeader, body: bytes, definition: Definition) -> Parsed:
    try:
        # fastavro raises whatever its decoders do: a broken file shows as any of IndexError, KeyError, EOFError, zlib.error …
        reader = fastavro.reader(io.BytesIO(body))
        schema = reader.writer_schema
        records = list(reader)
    except Exception as error:
        raise Undecodable(f"The chunk cannot be read as an Avro file: {error or type(error).__name__}") from error
    return parse_table(_table(schema, records, definition), definition)


def _table(schema: Avro, records: list[Any], definition: Definition) -> pa.Table:
    """The columns the table knows, in the writer's types."""
    known = {column.name for column in definition.columns}
    try:
        expanded: Avro = expand_schema(schema)
        fields = [field for field in expanded["fields"] if field["name"] in known]
        columns = parse_columns({"type": "record", "name": "chunk", "fields": fields}) if fields else ()
        arrays = [_array(column, [record[column.name] for record in records]) for column in columns]
    except (Invalid, pa.ArrowException, KeyError, TypeError) as error:
        raise Undecodable(f"The Avro file's schema cannot be read by this table: {error}") from error
    if not columns:
        return pa.table({"": pa.nulls(len(records))})
    return pa.table(arrays, names=[column.name for column in columns])


def _array(column: Column, values: list[Any]) -> pa.Array:
    if column.logical in _CLOCK:
        return pa.array(values, _CLOCK[column.logical])
    if column.logical == "uuid":
        values = [str(value) if isinstance(value, UUID) else value for value in values]
    return pa.array(values, column.arrow)
