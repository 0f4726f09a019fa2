"""Evidence about a column: the text of cells in, the scalar types that take all of them out, the narrowest first. Evidence of
pieces is merged.

The judge's own reader decides whether a type takes a cell. It is asked about a few cells first, then about all."""

from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from millrace.infer.avro import MAX_PRECISION, avro_type, decimal_type
from millrace.infer.digits import (
    DOUBLE_DIGITS,
    NO_DIGITS,
    Digits,
    digits_of_integers,
    digits_of_texts,
    is_spelled,
    octet_range,
)
from millrace.model.columns import column_of
from millrace.model.stored_types import Avro
from millrace.validate.text import typed_text

NUMBERS = frozenset({"int", "long", "decimal", "float", "double"})
MOMENTS = ("date", "timestamp-micros", "time-millis", "time-micros")
TEXTS = frozenset({"string", "bytes"})
EVERY = NUMBERS | TEXTS | {"boolean", "uuid", *MOMENTS}

_GLANCE = 50
_LAST_ASCII = 127
_INT_LIMIT = 1 << 31
_FLOAT_MOST, _FLOAT_LEAST = 3.4e38, 1.2e-38
_COLUMNS = {name: column_of("", avro_type(name)) for name in EVERY - {"decimal"}}
# A float keeps this many digits exactly.
FLOAT_DIGITS = 6

_TRUE, _FALSE = frozenset({"true", "t", "yes", "y", "1"}), frozenset({"false", "f", "no", "n", "0"})
_SAID_IN_FULL = frozenset({"true", "false", "yes", "no"})


@dataclass(frozen=True, slots=True)
class Evidence:
    """`cells`: how many have a value; `nulls`: how many have none. `fits`: the types that take all cells. `words`: the words
    seen, if all are booleans. `is_spelled`: a number has leading zeros or a plus, which only text keeps."""

    cells: int = 0
    nulls: int = 0
    fits: frozenset[str] = EVERY
    digits: Digits = NO_DIGITS
    words: frozenset[str] = frozenset()
    is_spelled: bool = False

    def merged(self, other: "Evidence") -> "Evidence":
        return Evidence(
            self.cells + other.cells,
            self.nulls + other.nulls,
            self.fits & other.fits,
            self.digits.merged(other.digits),
            self.words | other.words,
            self.is_spelled or other.is_spelled,
        )


NOTHING = Evidence()


def bytes_evidence(cells: pa.Array, alive: frozenset[str] = EVERY) -> Evidence:
    """Evidence of binary cells, which need not be text. Only types in `alive` are tried."""
    _, highest = octet_range(cells)
    text = cells.view(pa.string())
    try:
        if highest > _LAST_ASCII:
            text.validate(full=True)
    except pa.ArrowInvalid:
        return Evidence(len(cells) - cells.null_count, cells.null_count, frozenset({"bytes"}))
    return text_evidence(text, alive)


def text_evidence(cells: pa.Array, alive: frozenset[str] = EVERY) -> Evidence:
    text = cells.drop_null() if cells.null_count else cells
    if not len(text):
        return Evidence(nulls=len(cells))
    lowest, _ = octet_range(text)
    if lowest == 0:
        return Evidence(len(text), cells.null_count, frozenset({"bytes"}))
    fits, digits, words = _numbers(text, alive)
    if not fits:
        fits = {name for name in ("uuid", *MOMENTS) if name in alive and _values(name, text) is not None}
    if not fits and "boolean" in alive and _values("boolean", text) is not None:
        fits = {"boolean"}
        words = frozenset(pl.Series(text).str.strip_chars(" \t").str.to_lowercase().unique())
    spelled = bool(fits & NUMBERS) and is_spelled(text)
    return Evidence(len(text), cells.null_count, frozenset(fits | TEXTS), digits, words, spelled)


def integer_evidence(low: int, high: int, cells: int) -> Evidence:
    """Evidence of parsed whole numbers, given by the lowest and the highest."""
    fits = {"decimal", "double", "float"}
    fits |= {"long"} if _within(low, high, _INT_LIMIT << 32) else set()
    fits |= {"int"} if _within(low, high, _INT_LIMIT) else set()
    return Evidence(cells, 0, frozenset(fits), digits_of_integers(low, high))


def float_evidence(values: pa.Array) -> Evidence:
    """Evidence of parsed floating-point numbers."""
    plain = digits_of_texts(values.cast(pa.string()))
    fits = {"double"} | ({"float"} if _is_narrow(values) else set()) | (set() if plain is None else {"decimal"})
    # A floating-point number that is whole is written without a point here.
    return Evidence(len(values), 0, frozenset(fits), (plain or NO_DIGITS).merged(Digits(fraction=1)))


def only(name: str, cells: int) -> Evidence:
    """Evidence of cells that have exactly one type."""
    return Evidence(cells, 0, frozenset({name}))


def _numbers(text: pa.Array, alive: frozenset[str]) -> tuple[set[str], Digits, frozenset[str]]:
    """The numeric types that fit, the digits they need, and the words if the numbers may also be booleans."""
    integers = _values("long", text) if "long" in alive else None
    if integers is not None:
        span = pc.min_max(integers).as_py()
        shown = integer_evidence(span["min"], span["max"], len(text))
        words = frozenset({str(span["min"]), str(span["max"])})
        return set(shown.fits) | ({"boolean"} if words <= {"0", "1"} else set()), shown.digits, words
    doubles = _values("double", text) if "double" in alive else None
    if doubles is None:
        return set(), NO_DIGITS, frozenset()
    digits = digits_of_texts(text)
    fits = {"double"} | ({"float"} if _is_narrow(doubles) else set()) | (set() if digits is None else {"decimal"})
    return fits, digits or NO_DIGITS, frozenset()


def _values(name: str, text: pa.Array) -> pa.Array | None:
    """The cells as values of the type, if the judge takes all of them."""
    column = _COLUMNS[name]
    if len(text) > _GLANCE and typed_text(column, text.slice(0, _GLANCE))[1]:
        return None
    values, faults = typed_text(column, text)
    return None if faults else values


def _is_narrow(doubles: pa.Array) -> bool:
    sizes = pc.abs(doubles).filter(pc.is_finite(doubles))
    span = pc.min_max(sizes.filter(pc.greater(sizes, 0))).as_py()
    return span["min"] is None or (span["min"] >= _FLOAT_LEAST and span["max"] <= _FLOAT_MOST)


def _within(low: int, high: int, limit: int) -> bool:
    return -limit <= low and high < limit


def fitting(shown: Evidence) -> tuple[Avro, ...]:
    """Empty if no type takes all cells, or if there are no cells."""
    if not shown.cells:
        return ()
    found = [*_boolean(shown), *(() if shown.is_spelled else _numeric_types(shown))]
    found += [avro_type(name) for name in (*MOMENTS, "uuid") if name in shown.fits][:1]
    found += [name for name in ("string", "bytes") if name in shown.fits][:1]
    return tuple(found)


def _boolean(shown: Evidence) -> list[Avro]:
    """Boolean, if the words prove it. Digits alone are numbers, and a single kind of letter may mean anything."""
    if "boolean" not in shown.fits or "long" in shown.fits:
        return []
    is_said = shown.words & _SAID_IN_FULL or (shown.words & _TRUE and shown.words & _FALSE)
    return ["boolean"] if is_said or "string" not in shown.fits else []


def _numeric_types(shown: Evidence) -> list[Avro]:
    fits, digits = shown.fits, shown.digits
    precision = digits.whole + digits.fraction
    exact = [decimal_type(precision, digits.fraction)] if "decimal" in fits and precision <= MAX_PRECISION else []
    if "long" in fits:
        return ["int" if "int" in fits else "long"]
    if "decimal" in fits and not digits.fraction and "double" in fits:
        # Whole numbers too large for long: a double would lose digits, unless the numbers were doubles before.
        return exact
    if "double" not in fits:
        # JSON numbers and numeric strings in one column. Strings alone stay strings.
        return [] if "string" in fits else exact
    floating = "float" if "float" in fits and digits.significant <= FLOAT_DIGITS and exact else "double"
    return [floating, *exact] if digits.significant <= DOUBLE_DIGITS else exact
