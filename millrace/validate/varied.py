"""Text whose parts have no fixed places (d.M.yyyy, names of months): each cell has a cursor, and all cursors move at once."""

import numpy as np
import numpy.typing as npt

from millrace.model import patterns as p
from millrace.model.patterns import MONTHS, WEEKDAYS, MomentPattern, PatternPart
from millrace.validate.letters import Bytes, Flags, Ints

# By field.
Found = dict[str, Ints]

_LONGEST_NAME = 9


class _Names:
    """English names, found by their first three letters in any case."""

    def __init__(self, names: tuple[str, ...]) -> None:
        codes = np.array([int.from_bytes(name[:3].encode()) for name in names])
        self._order = np.argsort(codes)
        self._codes = codes[self._order]
        self.lengths = np.array([0, *(len(name) for name in names)])
        padded = b"".join(name.encode().ljust(_LONGEST_NAME, b"\0") for name in ("", *names))
        self.letters = np.frombuffer(padded, np.uint8).reshape(-1, _LONGEST_NAME)

    def numbers(self, first: Bytes, second: Bytes, third: Bytes) -> tuple[Ints, Flags]:
        """Counted from 1; 0 if there is no such name."""
        lower = [(letter | 32).astype(np.int64) for letter in (first, second, third)]
        code = (lower[0] << 16) + (lower[1] << 8) + lower[2]
        at = np.minimum(np.searchsorted(self._codes, code), len(self._codes) - 1)
        known = self._codes[at] == code
        return np.where(known, self._order[at] + 1, 0), known


_MONTH_NAMES, _WEEKDAY_NAMES = _Names(MONTHS), _Names(WEEKDAYS)
month_numbers, weekday_numbers = _MONTH_NAMES.numbers, _WEEKDAY_NAMES.numbers


class _Cursors:
    """A cursor in each cell. A step that does not fit makes its cell bad; it moves on all the same."""

    def __init__(self, letters: Bytes) -> None:
        self._flat = np.ascontiguousarray(letters.T).ravel()
        self._last = len(letters) - 1
        self._begins = np.arange(letters.shape[1], dtype=np.int64) * len(letters)
        self.at = np.zeros(letters.shape[1], np.int64)
        self.good = np.ones(letters.shape[1], bool)

    def look(self, ahead: int = 0) -> npt.NDArray[np.uint8]:
        """The byte there. Behind the end of every cell is a NUL."""
        found: npt.NDArray[np.uint8] = self._flat[self._begins + np.minimum(self.at + ahead, self._last)]
        return found

    def digit(self, ahead: int = 0) -> tuple[Ints, Flags]:
        value = self.look(ahead) - np.uint8(48)
        return value.astype(np.int64), value < 10

    def literal(self, text: bytes) -> None:
        for octet in text:
            self.good &= self.look() == octet
            self.at += 1

    def number(self, least: int, most: int) -> tuple[Ints, Ints]:
        """The number, and how many digits it has."""
        total, count = np.zeros(len(self.at), np.int64), np.zeros(len(self.at), np.int64)
        running = np.ones(len(self.at), bool)
        for place in range(most):
            value, is_digit = self.digit(place)
            running = running & is_digit
            total = np.where(running, total * 10 + value, total)
            count += running
        self.good &= count >= least
        self.at += count
        return total, count

    def name(self, names: _Names, *, whole: bool) -> Ints:
        numbers, known = names.numbers(self.look(), self.look(1), self.look(2))
        self.good &= known
        if whole:
            for place in range(3, _LONGEST_NAME):
                wanted = names.letters[numbers, place]
                self.good &= (wanted == 0) | (self.look(place) | 32 == wanted)
        self.at += names.lengths[numbers] if whole else 3
        return numbers

    def half_day(self) -> Ints:
        half = self.look() | 32
        self.good &= ((half == ord("a")) | (half == ord("p"))) & (self.look(1) | 32 == ord("m"))
        self.at += 2
        is_afternoon: Ints = (half == ord("p")).astype(np.int64)
        return is_afternoon

    def offset(self) -> Ints:
        """Minutes east of UTC: Z, +HH, +HHMM or +HH:MM."""
        first = self.look()
        zulu = first | 32 == ord("z")
        (tens, is_tens), (ones, is_ones) = self.digit(1), self.digit(2)
        hours = tens * 10 + ones
        gap = (self.look(3) == ord(":")).astype(np.int64)
        self.at += gap
        (tens, has_tens), (ones, has_ones) = self.digit(3), self.digit(4)
        self.at -= gap
        with_minutes = has_tens & has_ones
        minutes = np.where(with_minutes, tens * 10 + ones, 0)
        signed = (first == ord("+")) | (first == ord("-"))
        self.good &= zulu | (signed & is_tens & is_ones & (hours <= 18) & (minutes < 60))
        self.at += np.where(zulu, 1, 3 + with_minutes * (2 + gap))
        return np.where(zulu, 0, np.where(first == ord("-"), -1, 1) * (hours * 60 + minutes))


def read_varied(pattern: MomentPattern, letters: Bytes, lengths: Ints) -> tuple[Found, Flags]:
    """The fields of each cell, and which cells fit the pattern from their start to their end."""
    cursors = _Cursors(letters)
    values: Found = {}
    for part in pattern.parts:
        if part.field == p.LITERAL:
            cursors.literal(part.text.encode())
        else:
            values[part.field] = _value(part, cursors)
    return values, cursors.good & (cursors.at == lengths)


def _value(part: PatternPart, cursors: _Cursors) -> Ints:
    match part.field:
        case p.MONTH_NAME | p.SHORT_MONTH_NAME:
            return cursors.name(_MONTH_NAMES, whole=part.field == p.MONTH_NAME)
        case p.WEEKDAY | p.SHORT_WEEKDAY:
            return cursors.name(_WEEKDAY_NAMES, whole=part.field == p.WEEKDAY)
        case p.HALF_DAY:
            return cursors.half_day()
        case p.OFFSET:
            return cursors.offset()
        case p.FRACTION:
            value, count = cursors.number(part.least, part.most)
            return value * 10 ** (9 - count)
        case p.PADDED_DAY:
            cursors.at += cursors.look() == ord(" ")
    return cursors.number(part.least, part.most)[0]
