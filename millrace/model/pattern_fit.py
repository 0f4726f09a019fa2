"""Whether a pattern says what a column's type needs. Refuses in words, with a proposal where one is likely."""

from itertools import pairwise

from millrace.model.errors import Invalid
from millrace.model.patterns import (
    DAY,
    FRACTION,
    HALF_DAY,
    HALF_DAY_HOUR,
    HOUR,
    MINUTE,
    MONTH,
    OFFSET,
    SECOND,
    WEEKDAY,
    YEAR,
    MomentPattern,
)

DATE, TIMES, TIMESTAMPS = "date", ("time-millis", "time-micros"), ("timestamp-millis", "timestamp-micros")
MOMENTS = (DATE, *TIMES, *TIMESTAMPS)
_DATE_UNITS = (YEAR, MONTH, DAY)
_CLOCK = (HOUR, MINUTE, SECOND, FRACTION)


def refuse_unfit(pattern: MomentPattern, kind: str, what: str) -> None:
    """`kind` is a logical type; `what` is the start of messages."""
    of = "time" if kind in TIMES else "timestamp" if kind in TIMESTAMPS else "date"
    _refuse_half_days(pattern, what)
    needed = (HOUR,) if of == "time" else _DATE_UNITS
    for unit in needed:
        if not pattern.has(unit):
            likely = _month_for_minute(pattern) if unit == MONTH else ""
            needs = "an hour" if of == "time" else "year, month and day"
            raise Invalid(f"{what} is {pattern.text!r}, which has no {unit}.", remedy=f"{likely}A {of} needs {needs}.")
    for coarse, fine in pairwise(_CLOCK):
        if pattern.has(fine) and not pattern.has(coarse):
            likely = _month_for_minute(pattern) if fine == MINUTE else ""
            raise Invalid(f"{what} is {pattern.text!r}, which has a {fine} without {_a(coarse)}.", remedy=likely)
    if of == "time" and pattern.has(*_DATE_UNITS, WEEKDAY):
        likely = _minute_for_month(pattern)
        raise Invalid(
            f"{what} is {pattern.text!r}, which has a date.", remedy=f"{likely}A time has hour, minute and second."
        )
    if of != "timestamp" and pattern.has(OFFSET):
        raise Invalid(f"{what} is {pattern.text!r}, which has an offset.", remedy="Declare the column as a timestamp.")


def _a(unit: str) -> str:
    return f"an {unit}" if unit == HOUR else f"a {unit}"


def _refuse_half_days(pattern: MomentPattern, what: str) -> None:
    of_twelve = any(part.field == HALF_DAY_HOUR for part in pattern.parts)
    if of_twelve == pattern.has(HALF_DAY):
        return
    if of_twelve:
        full = pattern.text.replace("%I", "%H") if pattern.is_strptime else pattern.text.replace("h", "H")
        raise Invalid(
            f"{what} is {pattern.text!r}: an hour of 12 needs AM or PM.",
            remedy=f"Write {full!r} for 24 hours, or add {'%p' if pattern.is_strptime else 'a'}.",
        )
    full = pattern.text.replace("%H", "%I") if pattern.is_strptime else pattern.text.replace("H", "h")
    raise Invalid(f"{what} is {pattern.text!r}: AM or PM needs an hour of 12.", remedy=f"Likely {full!r}.")


def _month_for_minute(pattern: MomentPattern) -> str:
    if not pattern.has(MINUTE) or pattern.has(HOUR):
        return ""
    swapped = pattern.text.replace("%M", "%m") if pattern.is_strptime else pattern.text.replace("m", "M")
    return f"Did you mean {swapped!r}? "


def _minute_for_month(pattern: MomentPattern) -> str:
    if pattern.has(YEAR, DAY) or pattern.has(MINUTE):
        return ""
    swapped = pattern.text.replace("%m", "%M") if pattern.is_strptime else pattern.text.replace("M", "m")
    return f"Did you mean {swapped!r}? "
