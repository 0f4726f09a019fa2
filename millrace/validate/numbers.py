"""Numbers with other separators in, the same numbers as 1234.56 out, all rows at once.

A thousands separator stands between groups of three digits, and the first group has one to three and no leading zero: else
the cell becomes a text that is no number. So does a point that is not the decimal separator. `12.34` is no 1234."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Positions = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]

# Separators that look alike count as one: no-break, narrow no-break and thin spaces, and the typographic apostrophe.
_ALIKE = {" ": "\u00a0\u202f\u2009", "'": "\u2019"}
_NO_NUMBER = b"!"
# Stand for separators of more than one byte.
_DECIMAL, _THOUSANDS = "\x1e", "\x1f"
_PAD = 5
_BEFORE_A_NUMBER = np.frombuffer(b"+- \t", np.uint8)


def plain_numbers(text: pa.Array, decimal: str, thousands: str) -> pa.Array:
    """`decimal` and `thousands` are one character each; an empty one never occurs."""
    stands = _stands_for(thousands)
    if not _data(text).isascii():
        text = _one_byte_each(text, decimal, thousands, stands)
    letter = stands.encode()
    if letter and letter in _data(text):
        text = _without_thousands(text, letter)
    return _translated(text, _table(decimal if decimal.isascii() else _DECIMAL, letter))


def _data(text: pa.Array) -> bytes:
    data = text.buffers()[2]
    return b"" if data is None else data.to_pybytes()


def _stands_for(thousands: str) -> str:
    """The ASCII character that stands for the separator and for all that look like it."""
    group = next((one for one, others in _ALIKE.items() if thousands and thousands in others), thousands)
    return group if group.isascii() else _THOUSANDS


def _one_byte_each(text: pa.Array, decimal: str, thousands: str, stands: str) -> pa.Array:
    for one in _ALIKE.get(stands, "" if thousands.isascii() else thousands):
        text = pc.replace_substring(text, one, stands)
    return text if decimal.isascii() else pc.replace_substring(text, decimal, _DECIMAL)


def _table(decimal: str, thousands: bytes) -> bytes:
    table = bytearray(range(256))
    table[ord(".")] = _NO_NUMBER[0]
    if decimal:
        table[ord(decimal)] = ord(".")
    if thousands:
        table[thousands[0]] = _NO_NUMBER[0]
    return bytes(table)


def _translated(text: pa.Array, table: bytes) -> pa.Array:
    validity, offsets, data = text.buffers()
    if data is None:
        return text
    changed = pa.py_buffer(data.to_pybytes().translate(table))
    return pa.Array.from_buffers(text.type, len(text), [validity, offsets, changed], text.null_count, text.offset)


def _without_thousands(text: pa.Array, separator: bytes) -> pa.Array:
    """The cells without their separators, but for cells where one stands in the wrong place."""
    bounds = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + len(text) + 1].astype(np.int64)
    octets = np.frombuffer(_data(text), np.uint8)
    places = np.flatnonzero(octets[: bounds[-1]] == separator[0])
    places = places[places >= bounds[0]]
    cells = np.searchsorted(bounds, places, "right") - 1
    sound = _sound(octets, places, bounds[cells], bounds[cells + 1], separator[0])
    bad = np.zeros(len(text) + 1, bool)
    bad[cells[~sound]] = True
    gone = places[~bad[cells]]
    kept = np.ones(len(octets), bool)
    kept[gone] = False
    moved = (bounds - np.searchsorted(gone, bounds)).astype(np.int32)
    valid = pc.is_valid(text) if text.null_count else None
    joined = pa.Array.from_buffers(text.type, len(text), [None, pa.py_buffer(moved), pa.py_buffer(octets[kept])])
    return joined if valid is None else pc.if_else(valid, joined, pa.scalar(None, text.type))


def _sound(
    octets: Octets, places: Positions, starts: Positions, ends: Positions, separator: int
) -> npt.NDArray[np.bool_]:
    """Which separators stand where one belongs."""
    padded = np.concatenate([np.zeros(_PAD, np.uint8), octets, np.zeros(_PAD, np.uint8)])
    is_digit = padded - np.uint8(48) < 10

    def digit(by: int) -> npt.NDArray[np.bool_]:
        """Whether the cell has a digit so many places behind the separator."""
        at = places + by
        found: npt.NDArray[np.bool_] = is_digit[at + _PAD] & (at >= starts) & (at < ends)
        return found

    group_follows = digit(1) & digit(2) & digit(3) & ~digit(4)
    follows_group = (places - 4 >= starts) & (padded[places - 4 + _PAD] == separator)
    one, two, three = digit(-1), digit(-1) & digit(-2), digit(-1) & digit(-2) & digit(-3)
    first = places - one - two - three
    before = padded[first - 1 + _PAD]
    begins = (first == starts) | np.isin(before, _BEFORE_A_NUMBER)
    is_first_group = one & ~(three & digit(-4)) & begins & (padded[first + _PAD] != ord("0"))
    sound: npt.NDArray[np.bool_] = group_follows & (follows_group | is_first_group)
    return sound
