"""A JSON Lines chunk: one object per line in, typed columns and faults out.

Each line is parsed on its own. If a name occurs twice, its last value counts. A field with a former name of a column belongs
to that column, unless the row also has the present name. A missing field takes the column's default, else null. A field that
the table does not know is rejected, ignored or kept, as the table declares."""

import json
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import compress
from operator import itemgetter
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.types as pat

from millrace.arrow.types import arrow_type
from millrace.formats.line_cut import line_spans
from millrace.model.chunk import ChunkHeader
from millrace.model.columns import DELETED_COLUMN, Column
from millrace.model.defaults import stored_default
from millrace.model.fields import assigned
from millrace.validate.blanks import has_blanks, values_without_blanks
from millrace.validate.faults import CellFault, RowFault, Rows, listed
from millrace.validate.json_columns import typed_values
from millrace.validate.json_values import as_text
from millrace.validate.parsed import Originals, Parsed, Reading, long_keys, missing, slices
from millrace.validate.rescue import written
from millrace.validate.text import Outcome

MAX_UNKNOWN = 20

Object = dict[str, Any]


def parse_jsonl(header: ChunkHeader, body: bytes, reading: Reading) -> Parsed:
    spans = line_spans(body)
    lines = [body[start:end] for start, end in zip(spans.starts.tolist(), spans.ends.tolist(), strict=True)]
    has_decimal = any(_holds_decimal(arrow_type(column)) for column in reading.columns)
    objects, faults = _objects(lines, exact_json if has_decimal else orjson.loads)
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


def exact_json(line: bytes) -> Any:
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
    if has_blanks(column):
        values = values_without_blanks(column, values)
    if (is_key or not column.nullable) and None in values:
        absent = np.array([row for row, value in enumerate(values) if value is None], np.int64)
        faults.append(missing(column, is_key, absent))
    typed, found = typed_values(column, values)
    return typed, faults + found + (long_keys(column, typed) if is_key else [])


def renamed(objects: list[Object], columns: Sequence[Column]) -> list[Object]:
    """The objects with each field under its column's present name."""
    if not any(column.aliases or column.header for column in columns):
        return objects
    # A header is matched before a name, so a row with plain names alone need not be looked at.
    names = {column.name for column in columns}
    # Rows with the same field names are matched once.
    known: dict[tuple[str, ...], dict[str, str]] = {}

    def under_present_names(given: Object) -> Object:
        fields = tuple(given)
        if fields not in known:
            known[fields] = {former: name for name, former in assigned(fields, columns).items() if former != name}
        names_now = known[fields]
        return {names_now.get(name, name): value for name, value in given.items()} if names_now else given

    return [given if given.keys() <= names else under_present_names(given) for given in objects]


def picked(objects: list[Object], columns: Sequence[Column]) -> tuple[list[Sequence[Any]], bool]:
    """The values of each column, and whether all objects have exactly the table's fields."""
    names = [column.name for column in columns]
    if len(names) > 1 and objects:
        try:
            return list(zip(*map(itemgetter(*names), objects), strict=True)), set(map(len, objects)) == {len(names)}
        except KeyError:
            pass
    return [_values(objects, column) for column in columns], False


def _values(objects: list[Object], column: Column) -> list[Any]:
    default = None if stored_default(column) is None else column.default
    return [given.get(column.name, default) for given in objects]


def marks(objects: list[Object]) -> pa.Array | None:
    """For each object the text that marks a delete; None if no object has one."""
    if not any(DELETED_COLUMN in given for given in objects):
        return None
    values = [given.get(DELETED_COLUMN) for given in objects]
    return pa.array([None if value is None else as_text(value) for value in values], pa.string())


def refused(objects: list[Object], reading: Reading) -> list[RowFault]:
    """The faults of objects with fields that the table does not know."""
    found = []
    for row, strange in _strangers(objects, reading):
        for name, value in list(strange.items())[:MAX_UNKNOWN]:
            found.append(CellFault(row, name, "unknown_field", "is no column of the table", as_text(value)))
        if len(strange) > MAX_UNKNOWN:
            message = f"has {len(strange) - MAX_UNKNOWN} more fields that are no columns of the table"
            found.append(CellFault(row, None, "unknown_field", message, None))
    return listed(found)


def rescued(objects: list[Object], reading: Reading) -> Outcome:
    """For each object its unknown fields, as JSON."""
    texts: list[str | None] = [None] * len(objects)
    found = []
    for row, strange in _strangers(objects, reading):
        kept = {name: value for name, value in strange.items() if value is not None}
        try:
            texts[row] = written(kept) if kept else None
        except TypeError:
            message = "has fields unknown to the table that are nested too deep to be kept"
            found.append(CellFault(row, None, "unknown_field", message, None))
    return pa.array(texts, pa.string()), listed(found)


def _strangers(objects: list[Object], reading: Reading) -> Iterator[tuple[int, Object]]:
    """The objects with unknown fields, by position, and these fields."""
    known = {DELETED_COLUMN, *(column.name for column in reading.columns)}
    strange = [not given.keys() <= known for given in objects]
    for row in compress(range(len(objects)), strange):
        yield row, {name: value for name, value in objects[row].items() if name not in known}
