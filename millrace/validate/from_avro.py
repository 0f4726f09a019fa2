"""A chunk that is an Avro container file: records read by the writer's schema, then judged column by column."""

import io
from dataclasses import replace
from typing import Any

import fastavro
import pyarrow as pa

from millrace.formats.avro_container import Reader, read_header
from millrace.formats.avro_types import alone, field_type, fields_of, is_decimal, without_logical_types
from millrace.formats.matching import unknown
from millrace.model.chunk import ChunkHeader
from millrace.model.columns import DELETED_COLUMN
from millrace.model.errors import Invalid, words_of
from millrace.model.fields import assigned
from millrace.model.stored_types import Avro
from millrace.model.written import AS_USUAL
from millrace.validate.avro_values import ESCAPED, array_of, readable, spoken
from millrace.validate.faults import CellFault, RowFault, listed
from millrace.validate.from_arrow import parse_table
from millrace.validate.json_values import as_text
from millrace.validate.parsed import Parsed, Reading, Undecodable
from millrace.validate.rescue import value_parts, written
from millrace.validate.text import Outcome


def parse_avro(header: ChunkHeader, body: bytes, reading: Reading) -> Parsed:
    try:
        # fastavro passes on what its decoders raise. A broken file raises IndexError, KeyError, EOFError, zlib.error …
        schema, records = _decoded(body)
    except Exception as error:
        raise Undecodable(f"The chunk cannot be read as an Avro file: {words_of(error)}") from error
    try:
        fields = fields_of(schema)
        table = _table(fields, records, reading)
    except (Invalid, pa.ArrowException, KeyError, TypeError) as error:
        raise Undecodable(f"The Avro file's schema cannot be read by this table: {words_of(error)}") from error
    others, faults = _others(fields, records, reading)
    parsed = parse_table(table, _read_as_held(fields, reading), others)
    return replace(parsed, faults=parsed.faults + faults)


def _decoded(body: bytes) -> tuple[Avro, list[Any]]:
    """The writer's schema and its records, each value as the file holds it."""
    start = Reader(bytearray(body))
    header = read_header(start)
    plain = replace(header, schema=without_logical_types(header.schema))
    file = io.BytesIO(plain.framed(header.schema["name"], header.codec) + body[start.at :])
    return header.schema, list(fastavro.reader(file, handle_unicode_errors=ESCAPED))


def _table(fields: list[Avro], records: list[Any], reading: Reading) -> pa.Table:
    """The columns the table knows, in the writer's types."""
    names = assigned((field["name"] for field in fields), reading.columns).values()
    arrays = {
        field["name"]: array_of(field_type(field), [record[field["name"]] for record in records], field["name"])
        for field in fields
        if field["name"] in names
    }
    if any(field["name"] == DELETED_COLUMN for field in fields):
        marks = [record[DELETED_COLUMN] for record in records]
        texts = [None if mark is None else readable(as_text(mark)) for mark in marks]
        arrays[DELETED_COLUMN] = pa.array(texts, pa.string())
    return pa.table(arrays) if arrays else pa.table({"": pa.nulls(len(records))})


def _read_as_held(fields: list[Avro], reading: Reading) -> Reading:
    """Decimals of the file are held as text with a point, however the column's text is written."""
    decimals = {field["name"] for field in fields if is_decimal(alone(field_type(field)))}
    names = assigned((field["name"] for field in fields), reading.columns) if decimals else {}
    if not decimals & set(names.values()):
        return reading
    columns = tuple(
        replace(column, written=AS_USUAL) if names.get(column.name) in decimals else column
        for column in reading.columns
    )
    return replace(reading, columns=columns)


def _others(fields: list[Avro], records: list[Any], reading: Reading) -> tuple[dict[str, pa.Array], list[RowFault]]:
    parts, faults = {}, []
    names = unknown((field["name"] for field in fields), reading.columns) if reading.rescues else []
    for field in fields:
        if (name := field["name"]) in names:
            parts[name], found = _json(name, spoken(field["type"], [record[name] for record in records]))
            faults += found
    return parts, faults


def _json(name: str, values: list[Any]) -> Outcome:
    try:
        return value_parts(values), []
    except TypeError:
        return _json_each(name, values)


def _json_each(name: str, values: list[Any]) -> Outcome:
    texts: list[str | None] = []
    bad: list[CellFault] = []
    for row, value in enumerate(values):
        try:
            texts.append(None if value is None else written(value))
        except TypeError as error:
            texts.append(None)
            bad.append(
                CellFault(row, name, "json", f"cannot be kept as JSON: {words_of(error)}", readable(as_text(value)))
            )
    return pa.array(texts, pa.string()), listed(bad)
