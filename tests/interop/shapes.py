"""The tables of the matrix: their columns, their rows, and what other writers do to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

Row = dict[str, Any]
Fields = tuple[Mapping[str, Any], ...]

# Microseconds count, Spark's own timestamps reach neither end as nanoseconds, and a calendar changed in between.
MOMENTS = (
    datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    datetime(2024, 2, 29, 12, 30, 0, 123456, UTC),
    datetime(1500, 6, 15, 1, 2, 3, 4, UTC),
    None,
)
DAYS = (date(9999, 12, 31), date(2024, 2, 29), date(1500, 6, 15), None)
WIDE = 1 << 40


@dataclass(frozen=True)
class Shape:
    """`narrow` are the columns of the first revision, `wide` those of the second. Other writers ask for `part` and change
    `note`. `names` says how this shape calls the columns of a row."""

    name: str
    narrow: Fields
    wide: Fields
    key: str | None
    names: Mapping[str, str]

    @property
    def part(self) -> str:
        return self.names.get("part", "part")

    @property
    def note(self) -> str:
        return self.names.get("note", "note")

    def row(self, number: int, version: int, *, wide: bool) -> Row:
        return {self.names.get(name, name): cell for name, cell in self._cells(number, version, wide).items()}

    def _cells(self, number: int, version: int, wide: bool) -> Row:
        known = {field["name"] for field in self.wide}
        cells = {
            "id": f"k{number:03d} ß",
            "part": number % 4,
            "n": number + (WIDE if wide else 0),
            "x": number / 4 + (0.1 if wide else 0),
            "price": Decimal(number * 7 - 50).scaleb(-4),
            "at": MOMENTS[number % len(MOMENTS)],
            "day": DAYS[number // 2 % len(DAYS)],
            "note": None if number % 5 == 0 else f"{number} at {version}",
            "tags": ["a", f"t{version}"][: number % 3],
            "place": {"city": f"c{number % 7}", "zip": number},
        }
        return {name: cell for name, cell in cells.items() if self.names.get(name, name) in known}


def _column(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind}


_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 4}
_AT = ["null", {"type": "long", "logicalType": "timestamp-micros"}]
_DAY = ["null", {"type": "int", "logicalType": "date"}]
_TEXT = ["null", "string"]
_PLACE = {
    "type": "record",
    "name": "place",
    "fields": [_column("city", "string"), _column("zip", "int")],
}


def _rich(n: str, x: str) -> Fields:
    return (
        _column("id", "string"),
        _column("part", "int"),
        _column("n", n),
        _column("x", x),
        _column("price", _DECIMAL),
        _column("at", _AT),
        _column("day", _DAY),
        _column("note", _TEXT),
        _column("tags", {"type": "array", "items": "string"}),
        _column("place", _PLACE),
    )


def _keyless(n: str) -> Fields:
    return (
        _column("part", "int"),
        _column("n", n),
        _column("price", _DECIMAL),
        _column("at", _AT),
        _column("note", _TEXT),
    )


AWKWARD = {"id": "Bestell-Nr.", "part": "Teil (von 4)", "note": "Größe, lang; {alt}=neu", "n": "a.b", "at": "at"}


def _awkward(n: str) -> Fields:
    return (
        _column(AWKWARD["id"], "string"),
        _column(AWKWARD["part"], "int"),
        _column(AWKWARD["n"], n),
        _column(AWKWARD["note"], _TEXT),
        _column(AWKWARD["at"], _AT),
    )


TEXT_KEY = Shape("text key", _rich("int", "float"), _rich("long", "double"), "id", {})
NAMES = Shape("awkward names", _awkward("int"), _awkward("long"), AWKWARD["id"], AWKWARD)
KEYLESS = Shape("no key", _keyless("int"), _keyless("long"), None, {})
SHAPES = (TEXT_KEY, NAMES, KEYLESS)
MODES = ("auto", "never")
# One mode shows what engines make of awkward names.
COLUMNS = tuple((shape, mode) for shape in SHAPES for mode in MODES if shape is not NAMES or mode == "auto")
