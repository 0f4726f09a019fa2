"""Dates, times and timestamps from text by the column's formats, all rows at once. Other text becomes null.

If a column has several formats, the first that fits a cell counts. A date whose format has a time must be at midnight. A
format without a time means midnight, one without an offset the column's time zone."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from millrace.model import patterns as p
from millrace.model.patterns import MomentPattern, PatternPart, parse_pattern
from millrace.validate.letters import Bytes, Flags, Ints, days_of, letters_of, number, zone_offset
from millrace.validate.moments import date_array, time_array, timestamp_array
from millrace.validate.varied import Found, month_numbers, read_varied, weekday_numbers

_VARIES_ALWAYS = (p.MONTH_NAME, p.WEEKDAY)


@dataclass(frozen=True, slots=True)
class Moments:
    """Days since 1970, nanoseconds of the day, minutes east of UTC (None: the pattern has no offset), and which fit."""

    days: Ints
    nanoseconds: Ints
    offset: Ints | None
    good: Flags


def dates(text: pa.Array, formats: Sequence[str]) -> pa.Array:
    found = _by_first(text, formats)
    return date_array(found.days, found.good & (found.nanoseconds == 0))


def times(text: pa.Array, formats: Sequence[str], digits: int) -> pa.Array:
    found = _by_first(text, formats)
    return time_array(found.nanoseconds, found.good, digits)


def timestamps(text: pa.Array, formats: Sequence[str], zone: str) -> pa.Array:
    found, local = _by_first(text, formats), None
    if found.offset is not None:
        local = found.offset == _NONE
        return timestamp_array(found.days, found.nanoseconds, found.good, zone, np.where(local, 0, found.offset), local)
    return timestamp_array(found.days, found.nanoseconds, found.good, zone, None, None)


# The offset of a cell whose format has none.
_NONE = np.iinfo(np.int64).min


def _by_first(text: pa.Array, formats: Sequence[str]) -> Moments:
    found = moments_by(parse_pattern(formats[0]), text)
    for each in formats[1:]:
        rest = np.flatnonzero(~found.good)
        if not len(rest):
            break
        found = _put(found, rest, moments_by(parse_pattern(each), text.take(pa.array(rest))))
    return found


def _put(found: Moments, rows: Ints, other: Moments) -> Moments:
    """The moments with those of `other` at the given rows."""
    rows, kept = rows[other.good], other.good
    days, nanoseconds, good = found.days.copy(), found.nanoseconds.copy(), found.good.copy()
    days[rows], nanoseconds[rows], good[rows] = other.days[kept], other.nanoseconds[kept], True
    if found.offset is None and other.offset is None:
        return Moments(days, nanoseconds, None, good)
    offset = np.full(len(days), _NONE, np.int64) if found.offset is None else found.offset.copy()
    offset[rows] = _NONE if other.offset is None else other.offset[kept]
    return Moments(days, nanoseconds, offset, good)


def moments_by(pattern: MomentPattern, text: pa.Array) -> Moments:
    places = _fixed_places(pattern)
    letters, lengths = letters_of(text, sum(_width(part) for part in pattern.parts))
    if places is None:
        return _assembled(pattern, *read_varied(pattern, letters, lengths))
    found = _assembled(pattern, *_read_fixed(pattern, places, letters, lengths))
    if any(part.least < part.most and part.field != p.OFFSET for part in pattern.parts):
        rest = np.flatnonzero(~found.good & (lengths > 0))
        if len(rest):
            other = read_varied(pattern, np.ascontiguousarray(letters[:, rest]), lengths[rest])
            found = _put(found, rest, _assembled(pattern, *other))
    return found


def _width(part: PatternPart) -> int:
    """In bytes, at most."""
    return len(part.text.encode()) if part.field == p.LITERAL else part.most


@lru_cache(maxsize=1024)
def _fixed_places(pattern: MomentPattern) -> tuple[int, ...] | None:
    """Where each part begins if every number has all its digits; None if nothing is fixed."""
    *first, last = pattern.parts
    varies = any(part.field in (*_VARIES_ALWAYS, p.OFFSET) or _is_long(part) for part in first)
    if varies or last.field in _VARIES_ALWAYS or _is_long(last):
        return None
    return tuple(int(end) for end in np.cumsum([0, *(_width(part) for part in first)]))


def _is_long(part: PatternPart) -> bool:
    """A fraction of any number of digits."""
    return part.field == p.FRACTION and part.least < part.most


def _read_fixed(pattern: MomentPattern, places: Sequence[int], letters: Bytes, lengths: Ints) -> tuple[Found, Flags]:
    values: Found = {}
    last, size = pattern.parts[-1], places[-1] + _width(pattern.parts[-1])
    good = lengths == size if last.field != p.OFFSET else lengths > places[-1]
    for part, start in zip(pattern.parts, places, strict=True):
        if part.field == p.LITERAL:
            for place, octet in enumerate(part.text.encode(), start):
                good &= letters[place] == octet
        elif part.field == p.OFFSET:
            values[p.OFFSET], fits = zone_offset(letters, lengths, np.full(len(lengths), start, np.int64))
            good &= fits
        else:
            values[part.field], fits = _fixed_value(part, letters, start)
            good &= fits
    return values, good


def _fixed_value(part: PatternPart, letters: Bytes, start: int) -> tuple[Ints, Flags]:
    if part.field == p.SHORT_MONTH_NAME:
        return month_numbers(*(letters[start + place] for place in range(3)))
    if part.field == p.SHORT_WEEKDAY:
        return weekday_numbers(*(letters[start + place] for place in range(3)))
    if part.field == p.HALF_DAY:
        half, m = letters[start] | 32, letters[start + 1] | 32
        return (half == ord("p")).astype(np.int64), ((half == ord("a")) | (half == ord("p"))) & (m == ord("m"))
    value, good = number(letters, start, part.most)
    return (value * 10 ** (9 - part.most) if part.field == p.FRACTION else value), good


def _assembled(pattern: MomentPattern, values: Found, good: Flags) -> Moments:
    nothing = np.zeros(len(good), np.int64)
    days = nothing
    if pattern.has(p.YEAR):
        days, exists = days_of(_year(values), _first(values, p.MONTH, p.MONTH_NAME, p.SHORT_MONTH_NAME), _day(values))
        good = good & exists
    nanoseconds = nothing
    if pattern.has(p.HOUR):
        hour, fits = _hour(values)
        minute, second = values.get(p.MINUTE, nothing), values.get(p.SECOND, nothing)
        good = good & fits & (minute < 60) & (second < 60)
        nanoseconds = ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + values.get(p.FRACTION, nothing)
    return Moments(days, nanoseconds, values.get(p.OFFSET), good)


def _first(values: Found, *fields: str) -> Ints:
    return next(values[field] for field in fields if field in values)


def _day(values: Found) -> Ints:
    return _first(values, p.DAY, p.PADDED_DAY)


def _year(values: Found) -> Ints:
    if p.YEAR in values:
        return values[p.YEAR]
    short = values[p.SHORT_YEAR]
    return short + np.where(short < p.PIVOT, 2000, 1900)


def _hour(values: Found) -> tuple[Ints, Flags]:
    if p.HOUR in values:
        return values[p.HOUR], values[p.HOUR] < 24
    hour = values[p.HALF_DAY_HOUR]
    return hour % 12 + 12 * values[p.HALF_DAY], (hour >= 1) & (hour <= 12)
