"""A JSON Lines chunk: one object per line in, typed columns and faults out.

Every line is parsed by itself. Of a key written twice the last value counts. A field that is missing takes the column's
default, else null; a field the table does not know is a fault, or ignored where the table says so."""

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from operator import itemgetter
from typing import Any

import numpy as np
import orjson

from millrace.formats.line_rows import line_spans
from millrace.model.chunk import ChunkHeader
from millrace.model.columns import Avro, Column
from millrace.model.table import Definition
from millrace.validate.faults import Fault, Found, Rows, listed
from millrace.validate.json_columns import typed_values
from millrace.validate.json_values import as_text
from millrace.validate.parsed import Originals, Parsed, long_keys, missing, slices
from millrace.validate.text import Outcome

MAX_UNKNOWN = 20

Object = dict[str, Any]


def parse_jsonl(header: ChunkHeader, body: bytes, definition: Definition) -> Parsed:
    spans = line_spans(body)
    lines = [body[start:end] for start, end in zip(spans.starts.tolist(), spans.ends.tolist(), strict=True)]
    objects, faults = _objects(lines, _exact if _has_decimal(definition.table.schema) else orjson.loads)
    positions = None
    if faults:
        bad = np.concatenate([fault.rows for fault in faults])
        positions = np.delete(np.arange(len(lines), dtype=np.int64), bad)
    picked, exact = _picked(objects, definition.columns)
    found = _unknown(objects, definition) if definition.table.unknown_fields == "reject" and not exact else []
    columns = []
    for column, given in zip(definition.columns, picked, strict=True):
        values, more = _typed(column, column.name in definition.table.primary_key, given)
        columns.append(values)
        found += more
    faults += [fault.at(positions) for fault in found]

    def originals(rows: Rows) -> Originals:
        return Originals(slices(body, spans.starts, spans.ends, rows), spans.lines[rows])

    return Parsed(columns, positions, faults, len(lines), originals)


def _objects(lines: list[bytes], loads: Callable[[bytes], Any]) -> tuple[list[Object], list[Fault]]:
    """The objects in order, and the lines that are none."""
    values: list[Any] = []
    found: list[Found] = []
    rest = iter(lines)
    while len(values) + len(found) < len(lines):
        try:
            # extend keeps what it has taken before a line fails, so only bad lines cost a turn of this loop.
            values.extend(map(loads, rest))
        except orjson.JSONDecodeError as error:
            found.append(Found(len(values) + len(found), None, "json", f"is not valid JSON: {error}", None))
    return _only_objects(values, found, len(lines))


def _only_objects(values: list[Any], found: list[Found], rows: int) -> tuple[list[Object], list[Fault]]:
    if set(map(type, values)) <= {dict}:
        return values, listed(found)
    places = np.delete(np.arange(rows), [one.row for one in found])
    for place, value in zip(places.tolist(), values, strict=True):
        if type(value) is not dict:
            found.append(Found(place, None, "json", "is not a JSON object", as_text(value)))
    return [value for value in values if type(value) is dict], listed(found)


def _exact(line: bytes) -> Any:
    """Numbers with a point as they are written, so that a decimal is never rounded. orjson says whether it is JSON."""
    value = orjson.loads(line)
    try:
        return json.loads(line, parse_float=Decimal)
    except (ValueError, RecursionError):
        # An integer of thousands of digits, or nesting of hundreds of levels: more than any column may hold.
        return value


def _has_decimal(avro: Avro) -> bool:
    if isinstance(avro, list):
        return any(map(_has_decimal, avro))
    if not isinstance(avro, dict):
        return False
    return avro.get("logicalType") == "decimal" or any(
        _has_decimal(avro.get(key)) for key in ("type", "fields", "items", "values")
    )


def _picked(objects: list[Object], columns: tuple[Column, ...]) -> tuple[list[Sequence[Any]], bool]:
    """The values of each column, and whether every object has the table's fields and no others."""
    names = [column.name for column in columns]
    if len(names) > 1 and objects:
        try:
            return list(zip(*map(itemgetter(*names), objects), strict=True)), set(map(len, objects)) == {len(names)}
        except KeyError:
            pass
    return [[given.get(column.name, column.default) for given in objects] for column in columns], False


def _unknown(objects: list[Object], definition: Definition) -> list[Fault]:
    known = {column.name for column in definition.columns}
    found = []
    for row, given in enumerate(objects):
        if not given.keys() <= known:
            strange = [name for name in given if name not in known]
            for name in strange[:MAX_UNKNOWN]:
                found.append(Found(row, name, "unknown_field", "is no column of the table", as_text(given[name])))
            if len(strange) > MAX_UNKNOWN:
                message = f"has {len(strange) - MAX_UNKNOWN} more fields that are no columns of the table"
                found.append(Found(row, None, "unknown_field", message, None))
    return listed(found)


def _typed(column: Column, is_key: bool, values: Sequence[Any]) -> Outcome:
    faults: list[Fault] = []
    if (is_key or not column.nullable) and None in values:
        absent = np.array([row for row, value in enumerate(values) if value is None], np.int64)
        faults.append(missing(column, is_key, absent))
    typed, found = typed_values(column, values)
    return typed, faults + found + (long_keys(column, typed) if is_key else [])
