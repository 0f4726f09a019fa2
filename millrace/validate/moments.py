"""Dates, times and timestamps from ISO 8601 text, all rows at once. Other text becomes null.

date: YYYY-MM-DD. time: HH:MM:SS[.fraction]. timestamp: date, 'T' or a space, time, then nothing (UTC), 'Z' or an offset
(+HH, +HHMM, +HH:MM). Years 0001 to 9999. A fraction finer than the type is refused unless its digits are zeros."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

_DAY_US = 86_400_000_000
_MAX_FRACTION = 9
_MONTH_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] + [0] * 87, dtype=np.int64)
_FIRST_US = -62_135_596_800_000_000
_LAST_US = 253_402_300_799_999_999


def dates(text: pa.Array) -> pa.Array:
    letters, lengths = _letters(text, 10)
    days, good = _days(letters)
    return pa.array(days.astype(np.int32), mask=~(good & (lengths == 10))).cast(pa.date32())


def times(text: pa.Array, digits: int) -> pa.Array:
    """The time of day in units of 10^-digits seconds."""
    letters, lengths = _letters(text, 9 + _MAX_FRACTION)
    nanoseconds, ends, good = _clock(letters, lengths, 0)
    unit = 10 ** (9 - digits)
    good &= (ends == lengths) & (nanoseconds % unit == 0)
    return pa.array(nanoseconds // unit, mask=~good).cast(pa.int32() if digits == 3 else pa.int64())


def timestamps(text: pa.Array) -> pa.Array:
    letters, lengths = _letters(text, 20 + _MAX_FRACTION + 6)
    days, good = _days(letters)
    nanoseconds, ends, good_clock = _clock(letters, lengths, 11)
    offset, good_zone = _zone(letters, lengths, ends)
    good &= good_clock & good_zone & np.isin(letters[10], np.frombuffer(b"Tt ", np.uint8)) & (nanoseconds % 1000 == 0)
    moment = days * _DAY_US + nanoseconds // 1000 - offset * 60_000_000
    good &= (moment >= _FIRST_US) & (moment <= _LAST_US)
    return pa.array(moment, mask=~good).cast(pa.timestamp("us", tz="UTC"))


def _letters(text: pa.Array, width: int) -> tuple[Bytes, Ints]:
    """A matrix of bytes: row i of the result is the i-th byte of each cell. Cells wider than `width` count as empty."""
    fitting = pc.if_else(pc.less_equal(pc.binary_length(text), width), text, "").fill_null("")
    lengths = pc.binary_length(fitting).to_numpy().astype(np.int64)
    # One spare column, so that reading the byte behind the last one stays in bounds.
    padded = pc.ascii_rpad(fitting, width + 1, "\0")
    flat = np.frombuffer(padded.buffers()[2] or b"", np.uint8, count=len(text) * (width + 1))
    return np.ascontiguousarray(flat.reshape(len(text), width + 1).T), lengths


def _number(letters: Bytes, start: int, count: int) -> tuple[Ints, Flags]:
    total = np.zeros(letters.shape[1], np.int64)
    good = np.ones(letters.shape[1], bool)
    for letter in letters[start : start + count]:
        digit = letter - np.uint8(48)
        good &= digit < 10
        total = total * 10 + digit
    return total, good


def _days(letters: Bytes) -> tuple[Ints, Flags]:
    """Days since 1970-01-01 of the date at the start of each cell."""
    year, good_year = _number(letters, 0, 4)
    month, good_month = _number(letters, 5, 2)
    day, good_day = _number(letters, 8, 2)
    good = good_year & good_month & good_day & (letters[4] == ord("-")) & (letters[7] == ord("-"))
    good &= (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1)
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0)) & (month == 2)
    good &= day <= _MONTH_DAYS[np.where(good, month, 0)] + leap
    months = np.where(good, (year - 1970) * 12 + month - 1, 0)
    first_days = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return first_days + day - 1, good


def _clock(letters: Bytes, lengths: Ints, start: int) -> tuple[Ints, Ints, Flags]:
    """The time at `start` in nanoseconds of the day, and the end of its text."""
    hour, good_hour = _number(letters, start, 2)
    minute, good_minute = _number(letters, start + 3, 2)
    second, good_second = _number(letters, start + 6, 2)
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
    for place in range(_MAX_FRACTION):
        digit = letters[start + place] - np.uint8(48)
        running &= digit < 10
        nanoseconds += np.where(running, digit.astype(np.int64) * 10 ** (8 - place), 0)
        count += running
    return nanoseconds, count


def _zone(letters: Bytes, lengths: Ints, ends: Ints) -> tuple[Ints, Flags]:
    """The offset behind the time, in minutes east of UTC."""
    width = lengths - ends
    if not width.any():
        return width, np.ones(len(width), bool)
    columns = np.arange(len(ends))
    tail = letters[np.minimum(ends + np.arange(6)[:, None], len(letters) - 1), columns]
    hours, good_hours = _number(tail, 1, 2)
    short, good_short = _number(tail, 3, 2)
    colon, good_colon = _number(tail, 4, 2)
    sign = np.where(tail[0] == ord("-"), -1, 1)
    signed = (tail[0] == ord("+")) | (tail[0] == ord("-"))
    zulu = (width == 1) & ((tail[0] == ord("Z")) | (tail[0] == ord("z")))
    minutes = np.where(width == 5, short, np.where(width == 6, colon, 0))
    shaped = (width == 3) | ((width == 5) & good_short) | ((width == 6) & good_colon & (tail[3] == ord(":")))
    good_offset = signed & shaped & good_hours & (hours <= 18) & (minutes < 60)
    return np.where(good_offset, sign * (hours * 60 + minutes), 0), (width == 0) | zulu | good_offset
