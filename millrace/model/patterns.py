"""How a date, a time or a timestamp is written: a pattern in, its parts in order out. Refuses what it cannot read, with the
position in the pattern and a proposal.

Two notations: strptime (`%d.%m.%Y %H:%M`) if the pattern contains a %, else letters (`dd.MM.yyyy HH:mm`)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from millrace.model.errors import Invalid

LITERAL, YEAR, SHORT_YEAR, MONTH, MONTH_NAME, SHORT_MONTH_NAME = "literal", "year", "yy", "month", "month name", "MMM"
DAY, PADDED_DAY, WEEKDAY, SHORT_WEEKDAY = "day", "padded day", "weekday", "EEE"
HOUR, HALF_DAY_HOUR, MINUTE, SECOND, FRACTION = "hour", "hour of 12", "minute", "second", "fraction"
HALF_DAY, OFFSET = "AM or PM", "offset"

NUMBERS = (YEAR, SHORT_YEAR, MONTH, DAY, HOUR, HALF_DAY_HOUR, MINUTE, SECOND, FRACTION)
# What a part says about the moment. No pattern may say one of these twice.
UNITS = {
    SHORT_YEAR: YEAR,
    MONTH_NAME: MONTH,
    SHORT_MONTH_NAME: MONTH,
    PADDED_DAY: DAY,
    HALF_DAY_HOUR: HOUR,
    SHORT_WEEKDAY: WEEKDAY,
}
MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december",
)  # fmt: skip
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MOST_CHARACTERS = 100
# A year of two digits from here on is of the 20th century, one before it of the 21st. POSIX and Python have the same rule.
PIVOT = 69


@dataclass(frozen=True, slots=True)
class PatternPart:
    """A field of `least` to `most` characters, or the literal `text`. `at` is its position in the pattern."""

    field: str
    least: int
    most: int
    at: int = 0
    text: str = ""

    @property
    def unit(self) -> str:
        return UNITS.get(self.field, self.field)


@dataclass(frozen=True, slots=True)
class MomentPattern:
    text: str
    parts: tuple[PatternPart, ...]

    def has(self, *units: str) -> bool:
        return any(part.unit in units for part in self.parts)

    @property
    def is_strptime(self) -> bool:
        return "%" in self.text


Shape = tuple[str, int, int]

_OF_LETTER = {"M": MONTH, "d": DAY, "H": HOUR, "h": HALF_DAY_HOUR, "m": MINUTE, "s": SECOND}
_LETTERS: dict[str, Shape] = {
    "yyyy": (YEAR, 4, 4),
    "uuuu": (YEAR, 4, 4),
    "yy": (SHORT_YEAR, 2, 2),
    "uu": (SHORT_YEAR, 2, 2),
    **{letter: (field, 1, 2) for letter, field in _OF_LETTER.items()},
    **{2 * letter: (field, 2, 2) for letter, field in _OF_LETTER.items()},
    "MMM": (SHORT_MONTH_NAME, 3, 3),
    "MMMM": (MONTH_NAME, 3, 9),
    **{count * "S": (FRACTION, count, count) for count in range(1, 10)},
    "a": (HALF_DAY, 2, 2),
    **{count * "E": (SHORT_WEEKDAY, 3, 3) for count in range(1, 4)},
    "EEEE": (WEEKDAY, 6, 9),
    **{count * letter: (OFFSET, 1, 6) for letter in "XxZ" for count in range(1, 4)},
    "ZZZZZ": (OFFSET, 1, 6),
}
_DIRECTIVES: dict[str, Shape] = {
    "Y": (YEAR, 4, 4),
    "y": (SHORT_YEAR, 2, 2),
    "m": (MONTH, 1, 2),
    "d": (DAY, 1, 2),
    "e": (PADDED_DAY, 1, 2),
    "H": (HOUR, 1, 2),
    "I": (HALF_DAY_HOUR, 1, 2),
    "M": (MINUTE, 1, 2),
    "S": (SECOND, 1, 2),
    "f": (FRACTION, 1, 9),
    "p": (HALF_DAY, 2, 2),
    "z": (OFFSET, 1, 6),
    "b": (SHORT_MONTH_NAME, 3, 3),
    "B": (MONTH_NAME, 3, 9),
    "a": (SHORT_WEEKDAY, 3, 3),
    "A": (WEEKDAY, 6, 9),
}
_SHORT_FOR = {"T": "%H:%M:%S", "R": "%H:%M", "F": "%Y-%m-%d", "D": "%m/%d/%y"}
# What people mean who write something else.
_LIKELY_LETTERS = {
    "Y": "yyyy", "YY": "yy", "YYYY": "yyyy", "y": "yyyy", "u": "yyyy", "yyy": "yyyy", "D": "dd", "DD": "dd", "ddd": "EEE",
    "dddd": "EEEE", "mmm": "MMM", "mmmm": "MMMM", "L": "M", "LL": "MM", "k": "H", "kk": "HH", "K": "h", "KK": "hh", "A": "a",
    "aa": "a", "tt": "a", "p": "a", "T": "'T'", "z": "XXX", "f": "S", "ff": "SS", "fff": "SSS", "ffffff": "SSSSSS",
}  # fmt: skip
_LIKELY_DIRECTIVES = {"Z": "%z", "i": "%M", "s": "%S", "L": "%f", "N": "%f", "h": "%I", "k": "%H", "l": "%I", "P": "%p"}
_AS_DIRECTIVE = {
    "yyyy": "%Y", "YYYY": "%Y", "yy": "%y", "YY": "%y", "MMMM": "%B", "MMM": "%b", "MM": "%m", "dd": "%d", "DD": "%d",
    "HH": "%H", "hh": "%I", "mm": "%M", "ss": "%S", "SSS": "%f", "SSSSSS": "%f",
}  # fmt: skip
_FOREIGN_RUN = re.compile("|".join(sorted(_AS_DIRECTIVE, key=len, reverse=True)))
_LETTER_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+|'")
_DIRECTIVE_TOKEN = re.compile(r"%[-#]?(.)|[^%]+|%", re.DOTALL)


@lru_cache(maxsize=4096)
def parse_pattern(pattern: str, what: str = "The format") -> MomentPattern:
    """`what` is the start of messages."""
    if not 1 <= len(pattern) <= MOST_CHARACTERS or any(ord(letter) < 32 for letter in pattern):
        raise Invalid(
            f"{what} is {pattern!r:.60}.", remedy=f"Give 1 to {MOST_CHARACTERS} printable characters: dd.MM.yyyy."
        )
    read = _strptime_parts if "%" in pattern else _letter_parts
    parts = _two_digits_before_digits(pattern, tuple(read(pattern, what)))
    _refuse_repeated(pattern, parts, what)
    _refuse_run_together(pattern, parts, what)
    return MomentPattern(pattern, parts)


def refuse_pattern(pattern: str, what: str, at: int, problem: str, remedy: str) -> Invalid:
    return Invalid(f"{what} is {pattern!r}: at character {at + 1}, {problem}.", remedy=remedy)


def _letter_parts(pattern: str, what: str) -> Iterator[PatternPart]:
    for token in _LETTER_TOKEN.finditer(pattern):
        run, at = token.group(), token.start()
        if run == "'":
            raise refuse_pattern(pattern, what, at, "a quote is never closed", "Close it: 'T'. Write '' for one quote.")
        if token.group(1) is not None:
            yield _literal(token.group(1).replace("''", "'") or "'", at)
        elif token.group(2) is None:
            if "[" in run or "]" in run:
                raise refuse_pattern(
                    pattern, what, at, "brackets mark a part that may be missing", "Give a list of formats instead."
                )
            yield _literal(run, at)
        elif run in _LETTERS:
            yield PatternPart(*_LETTERS[run], at=at)
        else:
            raise _unknown_letters(pattern, what, run, at)


def _unknown_letters(pattern: str, what: str, run: str, at: int) -> Invalid:
    proposal = _LETTER_TOKEN.sub(_likely_letters, pattern)
    known = "Letters: yyyy yy MM MMM MMMM dd HH hh mm ss SSS a EEE XXX; other text stands in quotes."
    return refuse_pattern(pattern, what, at, f"{run!r} means nothing", f"Did you mean {proposal!r}? {known}")


def _likely_letters(token: re.Match[str]) -> str:
    run, letter = token.group(), token.group(2)
    if letter is None or run in _LETTERS:
        return run
    return _LIKELY_LETTERS.get(run) or (2 * letter if 2 * letter in _LETTERS else f"'{run}'")


def _strptime_parts(pattern: str, what: str) -> Iterator[PatternPart]:
    for token in _DIRECTIVE_TOKEN.finditer(pattern):
        run, at, letter = token.group(), token.start(), token.group(1)
        if run == "%":
            raise refuse_pattern(pattern, what, at, "a letter is missing behind %", "Write %% for a percent sign.")
        if letter is None:
            _refuse_mixed(pattern, what, run, at)
            yield _literal(run, at)
        elif letter == "%":
            yield _literal("%", at)
        elif letter in _SHORT_FOR:
            yield from (replace(part, at=at) for part in _strptime_parts(_SHORT_FOR[letter], what))
        elif letter in _DIRECTIVES:
            yield PatternPart(*_DIRECTIVES[letter], at=at)
        else:
            likely = _LIKELY_DIRECTIVES.get(letter)
            proposal = f"{pattern[:at]}{likely}{pattern[at + len(run) :]}"
            known = "Directives: " + " ".join(f"%{one}" for one in (*_DIRECTIVES, *_SHORT_FOR)) + "."
            remedy = f"Did you mean {proposal!r}? {known}" if likely else known
            raise refuse_pattern(pattern, what, at, f"{run!r} means nothing", remedy)


def _refuse_mixed(pattern: str, what: str, literal: str, at: int) -> None:
    found = _FOREIGN_RUN.search(literal)
    if found:
        proposal = _FOREIGN_RUN.sub(lambda run: _AS_DIRECTIVE[run.group()], pattern)
        raise refuse_pattern(
            pattern,
            what,
            at + found.start(),
            f"{found.group()!r} is of another notation than %",
            f"Did you mean {proposal!r}? Use one notation: %d.%m.%Y or dd.MM.yyyy.",
        )


def _literal(text: str, at: int) -> PatternPart:
    return PatternPart(LITERAL, len(text), len(text), at, text)


def _is_digits(part: PatternPart) -> bool:
    return part.field in NUMBERS or (part.field == LITERAL and part.text[0].isdigit())


def _two_digits_before_digits(pattern: str, parts: tuple[PatternPart, ...]) -> tuple[PatternPart, ...]:
    """In `%Y%m%d` the digits of one field follow those of another, so each has two."""
    if "%" not in pattern:
        return parts
    return tuple(
        replace(part, least=part.most) if part.most == 2 and part.field in NUMBERS and _is_digits(following) else part
        for part, following in pairwise((*parts, _literal("-", 0)))
    )


def _refuse_repeated(pattern: str, parts: tuple[PatternPart, ...], what: str) -> None:
    seen: set[str] = set()
    for part in parts:
        if part.unit in seen and part.unit != LITERAL:
            hint = "mm is the minute, MM the month; %M is the minute, %m the month."
            raise refuse_pattern(
                pattern, what, part.at, f"the {part.unit} stands a second time", f"Name it once: {hint}"
            )
        seen.add(part.unit)


def _refuse_run_together(pattern: str, parts: tuple[PatternPart, ...], what: str) -> None:
    for part, following in pairwise(parts):
        varies = part.least < part.most
        if part.field in NUMBERS and varies and _is_digits(following):
            remedy = "Write two letters for two digits (dd), or put something between them."
            raise refuse_pattern(
                pattern,
                what,
                following.at,
                f"digits follow the {part.unit}, which has no fixed number of digits",
                remedy,
            )
        if part.field == OFFSET and (_is_digits(following) or following.text.startswith(":")):
            raise refuse_pattern(
                pattern,
                what,
                following.at,
                "nobody can say where the offset before it ends",
                "Put a space between them.",
            )
