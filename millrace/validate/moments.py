"""Dates, times and timestamps from ISO 8601 text, all rows at once. Other text becomes null.

date: YYYY-MM-DD. time: HH:MM:SS[.fraction]. timestamp: date, 'T' or a space, time, then nothing (the column's zone, else
UTC), 'Z' or an offset (+HH, +HHMM, +HH:MM). Years 0001 to 9999. A fraction finer than the type is refused unless its digits
are zeros."""

import numpy as np
import pyarrow as pa

from millrace.validate.letters import (
    DAY_US,
    FIRST_US,
    LAST_US,
    MAX_FRACTION,
    Bytes,
    Flags,
    Ints,
    days_of,
    letters_of,
    number,
    zone_offset,
)
from millrace.validate.zones import in_utc


def dates(text: pa.Array) -> pa.Array:
    letters, lengths = letters_of(text, 10)
    days, good = _days(letters)
    return date_array(days, good & (lengths == 10))


def times(text: pa.Array, digits: int) -> pa.Array:
    """The time of day in units of 10^-digits seconds."""
    letters, lengths = letters_of(text, 9 + MAX_FRACTION)
    nanoseconds, ends, good = _clock(letters, lengths, 0)
    return time_array(nanoseconds, good & (ends == lengths), digits)


def timestamps(text: pa.Array, zone: str = "UTC") -> pa.Array:
    letters, lengths = letters_of(text, 20 + MAX_FRACTION + 6)
    days, good = _days(letters)
    nanoseconds, ends, good_clock = _clock(letters, lengths, 11)
    offset, good_zone = zone_offset(letters, lengths, ends)
    good &= good_clock & good_zone & np.isin(letters[10], np.frombuffer(b"Tt ", np.uint8))
    return timestamp_array(days, nanoseconds, good, zone, offset, ends == lengths)


def date_array(days: Ints, good: Flags) -> pa.Array:
    return pa.array(days.astype(np.int32), mask=~good).cast(pa.date32())


def time_array(nanoseconds: Ints, good: Flags, digits: int) -> pa.Array:
    unit = 10 ** (9 - digits)
    good = good & (nanoseconds % unit == 0)
    return pa.array(nanoseconds // unit, mask=~good).cast(pa.int32() if digits == 3 else pa.int64())


def timestamp_array(
    days: Ints, nanoseconds: Ints, good: Flags, zone: str, offset: Ints | None, is_local: Flags | None
) -> pa.Array:
    """Timestamps in UTC. `offset` is in minutes east of UTC. `is_local`: which have none (None: all) and are of the zone."""
    moment = days * DAY_US + nanoseconds // 1000
    good = good & (nanoseconds % 1000 == 0)
    if offset is not None:
        moment = moment - offset * 60_000_000
    if zone != "UTC":
        local = good if is_local is None else good & is_local
        moment[local], exists = in_utc(moment[local], zone)
        good[local] = exists
    good &= (moment >= FIRST_US) & (moment <= LAST_US)
    return pa.array(moment, mask=~good).cast(pa.timestamp("us", tz="UTC"))


def _days(letters: Bytes) -> tuple[Ints, Flags]:
    """Days since 1970-01-01 of the date at the start of each cell."""
    year, good_year = number(letters, 0, 4)
    month, good_month = number(letters, 5, 2)
    day, good_day = number(letters, 8, 2)
    days, exists = days_of(year, month, day)
    good = good_year & good_month & good_day & exists & (letters[4] == ord("-")) & (letters[7] == ord("-"))
    return days, good


def _clock(letters: Bytes, lengths: Ints, start: int) -> tuple[Ints, Ints, Flags]:
    """The time at `start` in nanoseconds of the day, and the end of its text."""
    hour, good_hour = number(letters, start, 2)
    minute, good_minute = number(letters, start + 3, 2)
    second, good_second = number(letters, start + 6, 2)
    good = good_hour & good_minute & good_second & (letters[start + 2] == ord(":")) & (letters[start + 5] == ord(":"))
    good &= (hour < 24) & (minute < 60) & (second < 60)
    seconds = (hour * 60 + minute) * 60 + second
    ends = np.full(len(lengths), start + 8, np.int64)
    pointed = letters[start + 8] == ord(".")
    if not pointed.any():
        return seconds * 1_000_000_000, ends, good
    fraction, count = _fraction(letters, start + 9, pointed)
    return (
        seconds * 1_000_000_000 + fraction,
        np.where(pointed, start + 9 + count, ends),
        good & (~pointed | (count > 0)),
    )


def _fraction(letters: Bytes, start: int, pointed: Flags) -> tuple[Ints, Ints]:
    """The fraction whose digits begin at `start`, in nanoseconds, and the number of digits."""
    nanoseconds = np.zeros(letters.shape[1], np.int64)
    count = np.zeros(letters.shape[1], np.int64)
    running = pointed.copy()
    for place in range(MAX_FRACTION):
        digit = letters[start + place] - np.uint8(48)
        running &= digit < 10
        nanoseconds += np.where(running, digit.astype(np.int64) * 10 ** (8 - place), 0)
        count += running
    return nanoseconds, count
