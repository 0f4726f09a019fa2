"""A JSON Lines chunk: one object per line in, typed columns and faults out.

Each line is parsed on its own. If a name occurs twice, its last value counts. A missing field takes the column's default,
else null. A field that the table does not know is rejected, ignored or kept, as the table declares."""

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.types as pat

from millrace.arrow.types import arrow_type
from millrace.formats.line_rows import line_spans
from millrace.model.chunk import ChunkHeader
from millrace.model.columns import Column
from millrace.validate.faults import CellFault, RowFault, Rows, listed
from millrace.validate.json_columns import typed_values
from millrace.validate.json_fields import Object, marks, picked, refused, renamed, rescued
from millrace.validate.json_values import as_text
from millrace.validate.parsed import Originals, Parsed, long_keys, missing, slices
from millrace.validate.reading import Reading
from millrace.validate.text import Outcome


def parse_jsonl(header: ChunkHeader, body: bytes, reading: Reading) -> Parsed:
    spans = line_spans(body)
    lines = [body[start:end] for start, end in zip(spans.starts.tolist(), spans.ends.tolist(), strict=True)]
    has_decimal = any(_holds_decimal(arrow_type(column)) for column in reading.columns)
    objects, faults = _objects(lines, _exact if has_decimal else orjson.loads)
    positions = None
    if faults:
        bad = np.concatenate([fault.rows for fault in faults])
        positions = np.delete(np.arange(len(lines), dtype=np.int64), bad)
    objects = renamed(objects, reading.columns)
    given, exact = picked(objects, reading.columns)
    found = refused(objects, reading) if reading.unknown == "reject" and not exact else []
    columns = []
    for column, values in zip(reading.columns, given, strict=True):
        typed, more = _typed(column, column.name in reading.keys, values)
        columns.append(typed)
        found += more
    kept, more = rescued(objects, reading) if reading.rescues else (None, [])
    faults += [fault.at(positions) for fault in found + more]

    def originals(rows: Rows) -> Originals:
        return Originals(slices(body, spans.starts, spans.ends, rows), spans.lines[rows])

    deletes = marks(objects) if reading.marked and not exact else None
    return Parsed(columns, positions, faults, len(lines), originals, deletes, kept)


def _objects(lines: list[bytes], loads: Callable[[bytes], Any]) -> tuple[list[Object], list[RowFault]]:
    """The objects in order, and faults for lines that are no objects."""
    values: list[Any] = []
    found: list[CellFault] = []
    rest = iter(lines)
    while len(values) + len(found) < len(lines):
        try:
            # `extend` keeps the values before a line that fails, so only bad lines cost a turn of this loop.
            values.extend(map(loads, rest))
        except orjson.JSONDecodeError as error:
            found.append(CellFault(len(values) + len(found), None, "json", f"is not valid JSON: {error}", None))
    return _only_objects(values, found, len(lines))


def _only_objects(values: list[Any], found: list[CellFault], rows: int) -> tuple[list[Object], list[RowFault]]:
    if set(map(type, values)) <= {dict}:
        return values, listed(found)
    places = np.delete(np.arange(rows), [fault.row for fault in found])
    for place, value in zip(places.tolist(), values, strict=True):
        if type(value) is not dict:
            found.append(CellFault(place, None, "json", "is not a JSON object", as_text(value)))
    return [value for value in values if type(value) is dict], listed(found)


def _exact(line: bytes) -> Any:
    """Numbers with a point as decimals, so that none is rounded. orjson decides whether the line is JSON."""
    value = orjson.loads(line)
    try:
        return json.loads(line, parse_float=Decimal)
    except (ValueError, RecursionError):
        # An integer of thousands of digits, or hundreds of levels of nesting: no column can hold it.
        return value


def _holds_decimal(kind: pa.DataType) -> bool:
    if pat.is_nested(kind):
        return any(_holds_decimal(kind.field(place).type) for place in range(kind.num_fields))
    return bool(pat.is_decimal(kind))


def _typed(column: Column, is_key: bool, values: Sequence[Any]) -> Outcome:
    faults: list[RowFault] = []
    if (is_key or not column.nullable) and None in values:
        absent = np.array([row for row, value in enumerate(values) if value is None], np.int64)
        faults.append(missing(column, is_key, absent))
    typed, found = typed_values(column, values)
    return typed, faults + found + (long_keys(column, typed) if is_key else [])
