"""The evidence of a column's cells in, the types that take all of them out, the narrowest first."""

from millrace.infer.avro import MAX_PRECISION, avro_type, decimal_type
from millrace.infer.digits import DOUBLE_DIGITS
from millrace.infer.evidence import MOMENTS, Evidence
from millrace.model.stored_types import Avro

# A float keeps this many digits exactly.
FLOAT_DIGITS = 6

_TRUE, _FALSE = frozenset({"true", "t", "yes", "y", "1"}), frozenset({"false", "f", "no", "n", "0"})
_SAID_IN_FULL = frozenset({"true", "false", "yes", "no"})


def fitting(shown: Evidence) -> tuple[Avro, ...]:
    """Empty if no type takes all cells, or if there are no cells."""
    if not shown.cells:
        return ()
    found = [*_boolean(shown), *(() if shown.is_spelled else _numbers(shown))]
    found += [avro_type(name) for name in (*MOMENTS, "uuid") if name in shown.fits][:1]
    found += [name for name in ("string", "bytes") if name in shown.fits][:1]
    return tuple(found)


def _boolean(shown: Evidence) -> list[Avro]:
    """Boolean, if the words prove it. Digits alone are numbers, and a single kind of letter may mean anything."""
    if "boolean" not in shown.fits or "long" in shown.fits:
        return []
    is_said = shown.words & _SAID_IN_FULL or (shown.words & _TRUE and shown.words & _FALSE)
    return ["boolean"] if is_said or "string" not in shown.fits else []


def _numbers(shown: Evidence) -> list[Avro]:
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
