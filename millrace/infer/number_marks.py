"""How a column writes numbers: the text of cells in, its decimal and thousands separators out."""

import re
from dataclasses import dataclass

import polars as pl

_SIGN = "[+-]?"
_SPACES = " \u00a0\u202f"
# (thousands, decimal): the first of equals is taken.
_MARKS = (
    ("", ","), (".", ","), (",", "."), ("'", "."), ("’", "."), *((space, ",") for space in _SPACES), ("'", ","), ("’", ","),
    *((space, ".") for space in _SPACES),
)  # fmt: skip
_CURRENCY = r"(?:[€$£¥₹]|EUR|USD|CHF|GBP|kr|zł)"
_DIGITS = rf"[0-9][0-9.,'{_SPACES}]*"
# What people write around numbers that no separator explains, with the words for it.
_ODD = (
    (rf"^{_SIGN} ?{_CURRENCY} ?{_SIGN}{_DIGITS}$|^{_SIGN}{_DIGITS} ?{_CURRENCY}$", "a currency sign"),
    (rf"^{_SIGN}{_DIGITS} ?%$", "a percent sign"),
    (rf"^\({_DIGITS}\)$", "brackets for negative numbers"),
    (rf"^{_DIGITS}-$", "a minus behind the number"),
)
# An IP address may look like groups of three digits.
_ADDRESS = r"^[0-9]{1,3}(?:\.[0-9]{1,3}){3}$"
_PLAIN = rf"^{_SIGN}{_DIGITS}(?:[eE]{_SIGN}[0-9]+)?$"


@dataclass(frozen=True, slots=True)
class NumberMarks:
    """`cells`: how many are numbers with these separators."""

    thousands: str
    decimal: str
    cells: int

    def normalised(self, text: pl.Series) -> pl.Series:
        """The cells that are numbers, as the judge's plain numbers."""
        numbers = text.filter(text.str.contains(_pattern(self.thousands, self.decimal)))
        if self.thousands:
            numbers = numbers.str.replace_all(self.thousands, "", literal=True)
        return numbers.str.replace(self.decimal, ".", literal=True) if self.decimal != "." else numbers


def _pattern(thousands: str, decimal: str) -> str:
    whole = "[0-9]+"
    if thousands:
        whole = rf"(?:[1-9][0-9]{{0,2}}(?:{re.escape(thousands)}[0-9]{{3}})+|[0-9]+)"
    return rf"^{_SIGN}{whole}(?:{re.escape(decimal)}[0-9]+)?$"


def marks_of(text: pl.Series) -> list[NumberMarks]:
    """The separators that make numbers of the most cells; several if the cells do not tell them apart. `text` has no nulls
    and no spaces at the edges."""
    present = "".join(text.str.extract_all(rf"[.,'’{_SPACES}]").explode().drop_nulls().unique().to_list())
    if text.str.contains(_ADDRESS).all():
        return []
    found = []
    for thousands, decimal in _MARKS:
        # A separator that does not occur is not proposed. A point that separates thousands separates no decimals.
        if thousands in present and (decimal in present or "." in (thousands, decimal)):
            cells = int(text.str.contains(_pattern(thousands, decimal)).sum())
            found.append(NumberMarks(thousands, decimal, cells))
    most = max((marks.cells for marks in found), default=0)
    return [marks for marks in found if marks.cells == most > 0]


def groups_of_three(text: pl.Series) -> bool:
    """Whether points could separate thousands in all cells, and do in one."""
    return bool(text.str.contains(_pattern(".", ",")).all() and text.str.contains(".", literal=True).any())


def odd_marks(text: pl.Series) -> list[str]:
    """What stands around the numbers of a column in which all cells are numbers to people, and some not to the judge."""
    found: list[str] = []
    known = text.str.contains(_PLAIN)
    for pattern, words in _ODD:
        has = text.str.contains(pattern)
        if has.any():
            found.append(words)
        known = known | has
    return found if known.all() else []
