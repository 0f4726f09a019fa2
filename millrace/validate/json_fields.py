"""Parsed JSON objects in, the values of each column out. Unknown fields are rejected, kept or ignored.

A field with a former name of a column belongs to that column, unless the row also has the present name."""

from collections.abc import Iterator, Sequence
from itertools import compress
from operator import itemgetter
from typing import Any

import pyarrow as pa

from millrace.model.columns import DELETED_COLUMN, Column
from millrace.model.defaults import stored_default
from millrace.model.fields import assigned
from millrace.validate.faults import CellFault, RowFault, listed
from millrace.validate.json_values import as_text
from millrace.validate.reading import Reading
from millrace.validate.rescue import written
from millrace.validate.text import Outcome

MAX_UNKNOWN = 20

Object = dict[str, Any]


def renamed(objects: list[Object], columns: Sequence[Column]) -> list[Object]:
    """The objects with each field under its column's present name."""
    if not any(column.aliases for column in columns):
        return objects
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
