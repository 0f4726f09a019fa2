"""Dates, times and timestamps as the integers of Avro's encoding: days, milliseconds or microseconds."""

import pyarrow as pa
import pyarrow.compute as pc

from millrace.arrow.types import arrow_type
from millrace.model.columns import Column
from millrace.validate.expected import called, meaning
from millrace.validate.faults import blanked, indices, worded
from millrace.validate.text import Outcome

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31
_DAY_MS = 86_400_000


def _span(factor: int) -> tuple[int, int]:
    return _FIRST_DAY * _DAY_MS * factor, (_LAST_DAY + 1) * _DAY_MS * factor - 1


_LIMITS = {
    "date": (_FIRST_DAY, _LAST_DAY),
    "time-millis": (0, _DAY_MS - 1),
    "time-micros": (0, _DAY_MS * 1000 - 1),
    "timestamp-millis": _span(1),
    "timestamp-micros": _span(1000),
}
ENCODED = frozenset(_LIMITS)


def typed_integers(column: Column, numbers: pa.Array, counted_as: str | None = None) -> Outcome:
    """int64 numbers as the logical type. A number outside the years 0001 to 9999, or outside the day, is null and a fault.

    `counted_as` is the logical type whose unit the numbers have, if it is not the column's own."""
    name = counted_as or meaning(column)
    low, high = _LIMITS[name]
    outside = indices(pc.or_(pc.less(numbers, low), pc.greater(numbers, high)).fill_null(False))
    faults = []
    if len(outside):
        text = numbers.take(pa.array(outside)).cast(pa.string())
        faults.append(
            worded(outside, column.name, "range", "", text, f" is not {called(name)}: it must be {low} to {high}")
        )
        numbers = blanked(numbers, outside)
    scaled = pc.multiply(numbers, 1000) if name == "timestamp-millis" else numbers
    narrow = scaled.cast(pa.int32()) if arrow_type(column).bit_width == 32 else scaled
    return narrow.cast(arrow_type(column)), faults
