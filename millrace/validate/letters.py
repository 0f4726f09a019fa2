"""The bytes of a column's cells as a matrix, and the numbers at fixed places in it."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

DAY_US = 86_400_000_000
FIRST_US = -62_135_596_800_000_000
LAST_US = 253_402_300_799_999_999
MAX_FRACTION = 9
_MONTH_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] + [0] * 87, dtype=np.int64)


def letters_of(text: pa.Array, width: int) -> tuple[Bytes, Ints]:
    """A matrix of bytes: row i of the result is the i-th byte of each cell. Cells wider than `width` count as empty."""
    fitting = pc.if_else(pc.less_equal(pc.binary_length(text), width), text, "").fill_null("")
    lengths = pc.binary_length(fitting).to_numpy().astype(np.int64)
    # One spare column, so that reading the byte behind the last one stays in bounds.
    padded = pc.ascii_rpad(fitting, width + 1, "\0")
    flat = np.frombuffer(padded.buffers()[2] or b"", np.uint8, count=len(text) * (width + 1))
    return np.ascontiguousarray(flat.reshape(len(text), width + 1).T), lengths


def number(letters: Bytes, start: int, count: int) -> tuple[Ints, Flags]:
    total = np.zeros(letters.shape[1], np.int64)
    good = np.ones(letters.shape[1], bool)
    for letter in letters[start : start + count]:
        digit = letter - np.uint8(48)
        good &= digit < 10
        total = total * 10 + digit
    return total, good


def days_of(year: Ints, month: Ints, day: Ints) -> tuple[Ints, Flags]:
    """Days since 1970-01-01, and which dates exist."""
    good = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1)
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0)) & (month == 2)
    good &= day <= _MONTH_DAYS[np.where(good, month, 0)] + leap
    months = np.where(good, (year - 1970) * 12 + month - 1, 0)
    first_days = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return first_days + day - 1, good


def zone_offset(letters: Bytes, lengths: Ints, ends: Ints) -> tuple[Ints, Flags]:
    """The offset behind the time that ends at `ends`, in minutes east of UTC. No offset is 0."""
    width = lengths - ends
    if not width.any():
        return width, np.ones(len(width), bool)
    columns = np.arange(len(ends))
    tail = letters[np.minimum(ends + np.arange(6)[:, None], len(letters) - 1), columns]
    hours, good_hours = number(tail, 1, 2)
    short, good_short = number(tail, 3, 2)
    colon, good_colon = number(tail, 4, 2)
    sign = np.where(tail[0] == ord("-"), -1, 1)
    signed = (tail[0] == ord("+")) | (tail[0] == ord("-"))
    zulu = (width == 1) & ((tail[0] == ord("Z")) | (tail[0] == ord("z")))
    minutes = np.where(width == 5, short, np.where(width == 6, colon, 0))
    shaped = (width == 3) | ((width == 5) & good_short) | ((width == 6) & good_colon & (tail[3] == ord(":")))
    good_offset = signed & shaped & good_hours & (hours <= 18) & (minutes < 60)
    return np.where(good_offset, sign * (hours * 60 + minutes), 0), (width == 0) | zulu | good_offset
