"""What a column's cells have shown in, the types that would take all of them out, the narrowest first."""

from millrace.infer.avro import MAX_PRECISION, avro_type, decimal_type
from millrace.infer.digits import DOUBLE_DIGITS
from millrace.infer.evidence import MOMENTS, Evidence
from millrace.model.stored_types import Avro

# So many digits survive the way into a float and back.
FLOAT_DIGITS = 6

_TRUE, _FALSE = frozenset({"true", "t", "yes", "y", "1"}), frozenset({"false", "f", "no", "n", "0"})
_SAID_IN_FULL = frozenset({"true", "false", "yes", "no"})


def fitting(shown: Evidence) -> tuple[Avro, ...]:
    """Nothing if the cells are of several kinds that no type unites, or if there are none."""
    if not shown.cells:
        return ()
    found = [*_boolean(shown), *(() if shown.is_spelled else _numbers(shown))]
    found += [avro_type(name) for name in (*MOMENTS, "uuid") if name in shown.fits][:1]
    found += [name for name in ("string", "bytes") if name in shown.fits][:1]
    return tuple(found)


def _boolean(shown: Evidence) -> list[Avro]:
    """Digits alone are numbers; a single kind of letter may be anything."""
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
        # Whole numbers too long for long: as floating ones they would lose digits, unless they were such before.
        return exact
    if "double" not in fits:
        # JSON numbers and numeric strings side by side; strings alone stay strings.
        return [] if "string" in fits else exact
    floating = "float" if "float" in fits and digits.significant <= FLOAT_DIGITS and exact else "double"
    return [floating, *exact] if digits.significant <= DOUBLE_DIGITS else exact
