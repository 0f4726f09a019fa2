"""Texts of numbers in, the number of their digits out. It decides between int, long, decimal, float and double."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

DOUBLE_DIGITS = 17
"""A double never needs more digits than this to be exact. A number with more digits was not written from a double."""

_PLAIN = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)$"
_ZERO, _NINE, _MINUS, _PLUS, _POINT, _FIRST_INK, _FIRST_LETTER = b"09-+.!A"

Ints = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Digits:
    """The most digits before and behind the point, and the most digits that a single number needs to be exact."""

    whole: int = 0
    fraction: int = 0
    significant: int = 0

    def merged(self, other: "Digits") -> "Digits":
        return Digits(
            max(self.whole, other.whole), max(self.fraction, other.fraction), max(self.significant, other.significant)
        )


NO_DIGITS = Digits()


def digits_of_texts(text: pa.Array) -> Digits | None:
    """None if a text is no number or has an exponent. `text` has no nulls."""
    lowest, highest = octet_range(text)
    if lowest >= _FIRST_INK and highest < _FIRST_LETTER:
        found = _counted(*_parts(text))
        if found is not None and found.significant <= DOUBLE_DIGITS:
            return found
    return _parsed(text)


def octet_range(cells: pa.Array) -> tuple[int, int]:
    """The lowest and the highest octet of all cells. Without cells: a plain ASCII octet."""
    letters, starts, ends = _parts(cells)
    used = letters[starts[0] : ends[-1]] if len(cells) else letters[:0]
    return (int(used.min()), int(used.max())) if used.size else (_FIRST_LETTER, _FIRST_LETTER)


def digits_of_integers(low: int, high: int) -> Digits:
    count = max((len(str(abs(value))) for value in (low, high) if value), default=0)
    return Digits(count, 0, count)


def is_spelled(text: pa.Array) -> bool:
    """Whether a number has leading zeros or a plus, like codes and telephone numbers. Only text keeps these."""
    letters, starts, ends = _parts(text)
    first = _letter(letters, starts, ends)
    starts = starts + (first == _MINUS)
    lead, behind = _letter(letters, starts, ends), _letter(letters, starts + 1, ends)
    padded = (lead == _ZERO) & (behind >= _ZERO) & (behind <= _NINE)
    return bool((padded | (first == _PLUS)).any())


def _counted(letters: Octets, starts: Ints, ends: Ints) -> Digits | None:
    """Counts digits from the positions of points alone; None if a text has two points. Zeros at the end count as needed."""
    points = np.flatnonzero(letters == _POINT)
    points = points[(points >= starts[0]) & (points < ends[-1])]
    owners = np.searchsorted(ends, points, side="right")
    if len(owners) and (np.diff(owners) == 0).any():
        return None
    first = _letter(letters, starts, ends)
    starts = starts + ((first == _MINUS) | (first == _PLUS))
    fraction = np.zeros(len(starts), np.int64)
    fraction[owners] = ends[owners] - points - 1
    pointed = np.zeros(len(starts), np.int64)
    pointed[owners] = 1
    whole = ends - starts - fraction - pointed - (_letter(letters, starts, ends) == _ZERO)
    return Digits(int(whole.max()), int(fraction.max()), int((whole + fraction).max()))


def _parsed(text: pa.Array) -> Digits | None:
    """Counts digits exactly, text by text."""
    numbers = pl.Series(text).str.strip_chars(" \t")
    if not numbers.str.contains(_PLAIN).all():
        return None
    parts = numbers.str.strip_chars_start("+-").str.split_exact(".", 1).struct.unnest()
    whole = parts["field_0"].str.strip_chars_start("0").str.len_bytes()
    behind = parts["field_1"].fill_null("")
    exact = behind.str.strip_chars_end("0")
    # In numbers below one, zeros right behind the point need no precision.
    below_one = exact.str.strip_chars_start("0").str.len_bytes()
    needed = (whole + exact.str.len_bytes()).zip_with(whole > 0, below_one)
    return Digits(_most(whole), _most(behind.str.len_bytes()), _most(needed))


def _parts(text: pa.Array) -> tuple[Octets, Ints, Ints]:
    letters = np.frombuffer(text.buffers()[2] or b"", np.uint8)
    bounds = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + len(text) + 1].astype(np.int64)
    return letters, bounds[:-1], bounds[1:]


def _letter(letters: Octets, places: Ints, ends: Ints) -> Octets:
    """The letter at each position; 0 behind the end of the text."""
    inside = places < ends
    return np.where(inside, letters[np.where(inside, places, 0)] if len(letters) else 0, 0).astype(np.uint8)


def _most(counts: pl.Series) -> int:
    most = counts.max()
    return most if isinstance(most, int) else 0
