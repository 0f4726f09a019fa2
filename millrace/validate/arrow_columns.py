"""One Arrow column of any type in, the declared type out, by casts that lose nothing. A cell that would lose is a fault.

Text is read as in CSV. Timestamps without a zone are UTC. Integers may stand for dates, times and timestamps as Avro
encodes them. A number with a fraction is no int. A float becomes the decimal that its shortest text shows."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from millrace.arrow.types import arrow_type
from millrace.model.columns import Column
from millrace.model.fields import field_of
from millrace.model.written import AS_USUAL
from millrace.validate.cells import holds_bytes, is_nested, typed_cells
from millrace.validate.deep import broken_inside, conformed, declared
from millrace.validate.encoded import ENCODED, typed_integers
from millrace.validate.expected import called, meaning
from millrace.validate.faults import RowFault, Rows, indices, lossy, same
from millrace.validate.halving import cast_each
from millrace.validate.text import Outcome


def typed_column(column: Column, given: pa.Array) -> Outcome:
    """The column as declared, with null in the cells that have a fault."""
    given = plain(given)
    if pat.is_binary(given.type):
        return typed_cells(column, given, clean=False, has_nul=True)
    if is_nested(column):
        return _nested(column, given)
    name = meaning(column)
    if name in ENCODED:
        return _moment(column, name, given)
    return _cast(column, name, given)


def plain(given: pa.Array) -> pa.Array:
    """The column without dictionaries. Text and bytes of any kind become binary, so that invalid text is found."""
    if pat.is_dictionary(given.type):
        given = given.dictionary_decode()
    if pat.is_string(given.type):
        return given.view(pa.binary())
    if pat.is_large_string(given.type):
        return given.view(pa.large_binary()).cast(pa.binary())
    if pat.is_string_view(given.type):
        return given.view(pa.binary_view()).cast(pa.binary())
    if pat.is_large_binary(given.type) or pat.is_fixed_size_binary(given.type) or pat.is_binary_view(given.type):
        return given.cast(pa.binary())
    return given


def _refused(column: Column, given: pa.Array, rows: Rows, why: str) -> list[RowFault]:
    if not len(rows):
        return []
    return [same(rows, column.name, "type", why, as_text(given.take(pa.array(rows))))]


def as_text(cells: pa.Array) -> pa.Array:
    """Cells of any type as text for messages, also values that Python cannot hold."""
    try:
        return lossy(cells.cast(pa.string()))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return lossy(pa.array([cells.slice(row, 1).to_string() for row in range(len(cells))], pa.string()))


def _impossible(column: Column, given: pa.Array) -> Outcome:
    rows = indices(pc.is_valid(given))
    why = f"of type {given.type} cannot become {called(meaning(column))}"
    return pa.nulls(len(given), arrow_type(column)), _refused(column, given, rows, why)


def _each(column: Column, given: pa.Array, target: pa.DataType) -> Outcome:
    """Casts the column; cell by cell where the whole cannot be cast."""
    try:
        values, bad = cast_each(given, target)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return _impossible(column, given)
    return values, _refused(column, given, bad, f"does not fit {meaning(column)}")


def _cast(column: Column, name: str, given: pa.Array) -> Outcome:
    source = given.type
    if name == "boolean" and not pat.is_boolean(source):
        return _impossible(column, given)
    if holds_bytes(column) or (name != "boolean" and name != "string" and pat.is_boolean(source)):
        return _impossible(column, given)
    if name == "decimal" and pat.is_floating(source):
        usual = replace(column, written=AS_USUAL)
        return typed_cells(usual, given.cast(pa.string()).view(pa.binary()), clean=True, has_nul=False)
    if arrow_type(column) == pa.string():
        text, faults = _each(column, given, pa.string())
        values, found = typed_cells(column, text.view(pa.binary()), clean=True, has_nul=False)
        return values, faults + found
    if pat.is_temporal(source):
        return _impossible(column, given)
    values, faults = _each(column, given, arrow_type(column))
    return _finite(column, given, values, faults) if name == "float" else (values, faults)


def _finite(column: Column, given: pa.Array, values: pa.Array, faults: list[RowFault]) -> Outcome:
    """Finds doubles that are too large for a float. A cast would turn them into infinity."""
    if not pat.is_float64(given.type):
        return values, faults
    overflown = indices(pc.and_(pc.is_inf(values), pc.is_finite(given)).fill_null(False))
    return values, faults + _refused(column, given, overflown, "does not fit float")


def _moment(column: Column, name: str, given: pa.Array) -> Outcome:
    if pat.is_integer(given.type):
        numbers, faults = _each(column, given, pa.int64())
        values, found = typed_integers(column, numbers)
        return values, faults + found
    unit, accepted, counted_as = _NATURAL[name]
    if not any(accepts(given.type) for accepts in accepted):
        return _impossible(column, given)
    moments, faults = _each(column, given, unit)
    numbers = moments.view(pa.int32() if unit.bit_width == 32 else pa.int64()).cast(pa.int64())
    values, found = typed_integers(column, numbers, counted_as)
    return values, faults + found


def _nested(column: Column, given: pa.Array) -> Outcome:
    """Casts with all inner values optional, so that a missing value is reported by its path, not as a failed cast."""
    values, faults = _each(column, conformed(given, field_of(column)), _optional(arrow_type(column)))
    inside = broken_inside(column.name, column.avro, values)
    broken = np.zeros(len(values), np.bool_)
    for fault in inside:
        broken[fault.rows] = True
    kept = values.take(pa.array(np.arange(len(values)), mask=broken))
    return declared(kept, arrow_type(column)), faults + inside


def _optional(kind: pa.DataType) -> pa.DataType:
    if pat.is_struct(kind):
        return pa.struct([pa.field(field.name, _optional(field.type)) for field in kind])
    if pat.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _optional(kind.value_type)))
    if pat.is_map(kind):
        return pa.map_(kind.key_type, pa.field(kind.item_field.name, _optional(kind.item_type)))
    return kind


_Accepts = Callable[[pa.DataType], bool]
_UTC = pa.timestamp("us", tz="UTC")
_NATURAL: dict[str, tuple[pa.DataType, tuple[_Accepts, ...], str]] = {
    "date": (pa.date32(), (pat.is_date,), "date"),
    "time-millis": (pa.time32("ms"), (pat.is_time,), "time-millis"),
    "time-micros": (pa.time64("us"), (pat.is_time,), "time-micros"),
    "timestamp-millis": (_UTC, (pat.is_timestamp, pat.is_date), "timestamp-micros"),
    "timestamp-micros": (_UTC, (pat.is_timestamp, pat.is_date), "timestamp-micros"),
}
