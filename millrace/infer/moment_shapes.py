"""How a column writes dates, times and timestamps: the text of cells in, formats out, and whether the day or the month comes
first.

Each cell becomes a mask, in which every digit is a 0. A column has few masks. A mask says where the numbers are, and the
numbers at one place say whether it can be a month."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import polars as pl

from millrace.model.patterns import MONTHS, WEEKDAYS

DATE, TIME, TIMESTAMP = "date", "time", "timestamp"
DAY_FIRST, MONTH_FIRST = "day", "month"
_MOST_MASKS = 100
_MONTHS_IN_YEAR, _DAYS_IN_MONTH = 12, 31
_LONGEST = 40
# Masks write these letters for names of months and weekdays, and for AM and PM.
_LONG_MONTH, _SHORT_MONTH, _MAY, _LONG_DAY, _SHORT_DAY, _HALF = "\x01\x02\x03\x04\x05\x06"


def _names(words: tuple[str, ...]) -> str:
    return rf"(?i)(^|[^a-z])(?:{'|'.join(words)})($|[^a-z])"


_NAMES = (
    (_names(("may",)), _MAY),
    (_names(MONTHS), _LONG_MONTH),
    (_names(tuple(month[:3] for month in MONTHS)), _SHORT_MONTH),
    (_names(WEEKDAYS), _LONG_DAY),
    (_names(tuple(day[:3] for day in WEEKDAYS)), _SHORT_DAY),
    (r"(?i)([0-9] ?)[ap]m($|[^a-z])", _HALF),
)
_MONTH_NAME = f"[{_LONG_MONTH}{_SHORT_MONTH}{_MAY}]"
_DATES = (
    r"(?P<a>0{1,4})(?P<s1>[./-])(?P<b>0{1,2})(?P<s2>(?P=s1))(?P<c>0000|00?)",
    rf"(?P<day>00?)(?P<s1>[ ./-]|\. )(?P<name>{_MONTH_NAME})(?P<s2>[ ./-]|, )(?P<year>0000|00)",
    rf"(?P<name>{_MONTH_NAME})(?P<s1> )(?P<day>00?)(?P<s2>, | )(?P<year>0000|00)",
    r"(?P<compact>0{8})",
)
_WEEKDAY = rf"(?:(?P<weekday>[{_LONG_DAY}{_SHORT_DAY}])(?P<s0>, | ))?"
_TIME = (
    r"(?P<hour>00?):(?P<minute>00)(?::(?P<second>00)(?:(?P<point>[.,])(?P<fraction>0{1,9}))?)?"
    rf"(?:(?P<gap> ?)(?P<half>{_HALF}))?"
)
_ZONE = r"(?:(?P<s4> ?)(?P<zone>Z|[+-]00:?00|[+-]00))?"
_MASKS = tuple(re.compile(rf"{_WEEKDAY}{date}(?:(?P<s3>T|, |:| {{1,2}}){_TIME}{_ZONE})?") for date in _DATES)
_TIME_MASK = re.compile(_TIME)
_LONG_COMPACT = re.compile(r"(?P<compact>0{8})(?P<clock>000000)")
_ISO = re.compile(r"yyyy-MM-dd(?:(?:'T'| )HH:mm:ss(?:\.S{1,6})?(?:XXX|Z)?)?|HH:mm:ss(?:\.S{1,6})?")


@dataclass(frozen=True, slots=True)
class MomentShape:
    """Cells written alike. `swapped`: the pattern with the month first, if it is not clear from the shape that the day is.
    `first_beyond`, `second_beyond`: how many cells have a number at this place that is no month."""

    kind: str
    cells: int
    pattern: str
    swapped: str | None = None
    first_beyond: int = 0
    second_beyond: int = 0

    @property
    def is_iso(self) -> bool:
        return _ISO.fullmatch(self.pattern) is not None

    @property
    def order(self) -> str | None:
        """What comes first; None if the cells do not tell, or if the shape has no such question."""
        if self.swapped is None or self.first_beyond == self.second_beyond:
            return None
        return DAY_FIRST if self.first_beyond > self.second_beyond else MONTH_FIRST

    @property
    def is_open(self) -> bool:
        return self.swapped is not None and self.order is None

    def format(self, order: str) -> str:
        """The pattern. `order` counts where the cells do not tell."""
        month_first = (self.order or order) == MONTH_FIRST
        return self.swapped if month_first and self.swapped is not None else self.pattern


def shapes_of(text: pl.Series) -> list[MomentShape]:
    """The shapes of cells that may be moments, the most frequent first. `text` has no nulls and no spaces at the edges."""
    cells = pl.DataFrame({"text": text, "mask": _masked(text)})
    counts = cells.group_by("mask", maintain_order=True).len().sort("len", descending=True, maintain_order=True)
    found: dict[str, MomentShape] = {}
    for mask, _ in counts.head(_MOST_MASKS).iter_rows():
        layout = _layout(mask)
        if layout is not None:
            alike = cells.filter(pl.col("mask") == mask)["text"]
            key, shape = _shape(layout, alike)
            found[key] = _joined(found[key], shape) if key in found else shape
    return sorted(found.values(), key=lambda shape: -shape.cells)


def _masked(text: pl.Series) -> pl.Series:
    mask = text.str.slice(0, _LONGEST + 1)
    for name, letter in _NAMES:
        mask = mask.str.replace_all(name, f"${{1}}{letter}${{2}}")
    return mask.str.replace_all("[0-9]", "0")


def _layout(mask: str) -> re.Match[str] | None:
    if len(mask) > _LONGEST:
        return None
    for known in (*_MASKS, _TIME_MASK, _LONG_COMPACT):
        found = known.fullmatch(mask)
        if found:
            return found
    return None


def _shape(layout: re.Match[str], cells: pl.Series) -> tuple[str, MomentShape]:
    """The shape of cells with one mask. Shapes with the same key differ only in the number of digits."""
    groups = {name: value or "" for name, value in layout.groupdict().items()}
    clock = _clock(groups)
    kind = TIME if "s3" not in groups and "compact" not in groups else TIMESTAMP if clock else DATE
    if kind == TIME:
        return _key(clock), MomentShape(TIME, len(cells), clock)
    ordered = _dates(groups, layout, cells)
    head = _weekday(groups)
    pattern, swapped = (None if date is None else head + date + clock for date in (ordered.pattern, ordered.swapped))
    assert pattern is not None
    shape = replace(ordered, kind=kind, pattern=pattern, swapped=swapped)
    return _key(pattern), shape


def _key(pattern: str) -> str:
    return re.sub(r"([dMHh])\1?(?!\1)", r"\1", pattern.replace("MMMM", "n").replace("MMM", "n"))


def _joined(one: MomentShape, other: MomentShape) -> MomentShape:
    return MomentShape(
        one.kind,
        one.cells + other.cells,
        _looser(one.pattern, other.pattern),
        None if one.swapped is None or other.swapped is None else _looser(one.swapped, other.swapped),
        one.first_beyond + other.first_beyond,
        one.second_beyond + other.second_beyond,
    )


def _looser(one: str, other: str) -> str:
    """The pattern that takes the cells of both: a single letter takes one or two digits, four letters of a month take any."""
    runs = (re.findall(r"(([A-Za-z])\2*|[^A-Za-z]+)", pattern) for pattern in (one, other))
    pairs = zip(*([run for run, _ in each] for each in runs), strict=True)
    return "".join(
        min(pair, key=len) if pair[0][0] in "dHh" or max(map(len, pair)) < 3 else max(pair, key=len) for pair in pairs
    )


def _clock(groups: dict[str, str]) -> str:
    if groups.get("clock"):
        return "HHmmss"
    if not groups.get("hour"):
        return ""
    letter = "h" if groups["half"] else "H"
    parts = [_joiner(groups.get("s3", "")), letter * len(groups["hour"]), ":mm"]
    if groups["second"]:
        parts.append(":ss")
    if groups["fraction"]:
        parts += [groups["point"], "S" * len(groups["fraction"])]
    if groups["half"]:
        parts += [groups["gap"], "a"]
    if groups.get("zone"):
        parts += [groups["s4"], "Z" if re.fullmatch(r"[+-]0000", groups["zone"]) else "XXX"]
    return "".join(parts)


def _joiner(between: str) -> str:
    return "'T'" if between == "T" else between


def _weekday(groups: dict[str, str]) -> str:
    if not groups.get("weekday"):
        return ""
    return ("EEEE" if groups["weekday"] == _LONG_DAY else "EEE") + groups["s0"]


def _dates(groups: dict[str, str], layout: re.Match[str], cells: pl.Series) -> MomentShape:
    """The date in the cells, without kind and clock."""
    plain = MomentShape("", len(cells), "")
    if groups.get("compact"):
        return replace(plain, pattern="yyyyMMdd")
    if groups.get("name"):
        return replace(plain, pattern="".join(_in_words(groups, layout)))
    first, second, last, mark = groups["a"], groups["b"], groups["c"], groups["s1"]
    if len(first) == len("yyyy") or (len(first) == len(last) == 2 and _most(cells, 1) > _DAYS_IN_MONTH):
        return replace(plain, pattern=f"{'y' * len(first)}{mark}{'M' * len(second)}{mark}{'d' * len(last)}")
    year = f"{mark}{'y' * max(2, len(last))}"
    return replace(
        plain,
        pattern=f"{'d' * min(2, len(first))}{mark}{'M' * len(second)}{year}",
        # With dots the day is first everywhere.
        swapped=None if mark == "." else f"{'M' * min(2, len(first))}{mark}{'d' * len(second)}{year}",
        first_beyond=_beyond(cells, 1),
        second_beyond=_beyond(cells, 2),
    )


def _in_words(groups: dict[str, str], layout: re.Match[str]) -> Iterator[str]:
    fields = {
        "day": "d" * len(groups["day"]),
        "name": _month_letters(groups["name"]),
        "year": "y" * len(groups["year"]),
    }
    ordered = sorted(fields, key=layout.start)
    yield fields[ordered[0]]
    yield groups["s1"]
    yield fields[ordered[1]]
    yield groups["s2"]
    yield fields[ordered[2]]


def _month_letters(name: str) -> str:
    return "MMMM" if name == _LONG_MONTH else "MMM"


def _numbers(cells: pl.Series, place: int) -> pl.Series:
    """The first or the second number of each cell."""
    return cells.str.extract(r"^[^0-9]*([0-9]+)[^0-9]+([0-9]+)", place).cast(pl.Int32, strict=False)


def _beyond(cells: pl.Series, place: int) -> int:
    return int((_numbers(cells, place) > _MONTHS_IN_YEAR).sum())


def _most(cells: pl.Series, place: int) -> int:
    most = _numbers(cells, place).max()
    return most if isinstance(most, int) else 0
