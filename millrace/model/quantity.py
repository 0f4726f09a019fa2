"""Amounts as Kubernetes writes them: `250m`, `1.5`, `64Mi`, `1e3`. Exact; a part of a unit is rounded up."""

import re
from fractions import Fraction

from millrace.model.errors import Invalid

QUANTITY = re.compile(
    r"\+?(?P<digits>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?P<suffix>[KMGTPE]i|[numkMGTPE]?|[eE][+-]?[0-9]{1,3})", re.ASCII
)
_MOST_DIGITS = 40
_FACTORS: dict[str, Fraction] = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(1 << 10), "Mi": Fraction(1 << 20), "Gi": Fraction(1 << 30), "Ti": Fraction(1 << 40),
    "Pi": Fraction(1 << 50), "Ei": Fraction(1 << 60),
}  # fmt: skip
# A number up to this, written in a unit of memory, is a plausible number of cores.
MOST_MEANT_CORES = 64
LARGEST = (1 << 63) - 1


def parse_quantity(what: str, given: object) -> Fraction:
    """A number, or text with one of Kubernetes' suffixes."""
    words = _words(given)
    found = QUANTITY.fullmatch(words) if len(words) <= _MOST_DIGITS else None
    amount = None if found is None else Fraction(found["digits"]) * _factor(found["suffix"])
    if found is None and words.startswith("-") and QUANTITY.fullmatch(words[1:]):
        raise Invalid(f"{what} is {given!r:.60}, below 0.", remedy="Write a positive amount, or leave it out.")
    if amount is None or amount > LARGEST:
        raise Invalid(
            f"{what} is {given!r:.60}, which is no quantity.", remedy="Write it as Kubernetes does: 250m, 2, 64Mi, 1G."
        )
    return amount


def parse_cores(what: str, given: object) -> Fraction:
    """As `parse_quantity`. Units of memory are no units of CPU: `1Gi` was meant as 1."""
    amount = parse_quantity(what, given)
    unit, number = memory_unit(given), _digits(given)
    return number if unit and number <= MOST_MEANT_CORES else amount


def memory_unit(given: object) -> str | None:
    """The unit of memory that the amount is written in, if it is in one: Ki, Mi, Gi …"""
    found = QUANTITY.fullmatch(_words(given))
    return found["suffix"] if found is not None and found["suffix"].endswith("i") else None


def _digits(given: object) -> Fraction:
    found = QUANTITY.fullmatch(_words(given))
    return Fraction(found["digits"]) if found is not None else Fraction(0)


def _words(given: object) -> str:
    return str(given) if isinstance(given, int | float | str) and not isinstance(given, bool) else ""


def _factor(suffix: str) -> Fraction:
    return _FACTORS[suffix] if suffix in _FACTORS else Fraction(10) ** int(suffix[1:])


def in_units(amount: Fraction, unit: Fraction) -> int:
    """The number of units, rounded up."""
    return -int(-(amount / unit) // 1)


def millis_text(millis: int) -> str:
    """CPU in Kubernetes' notation."""
    return f"{millis}m" if millis % 1000 else str(millis // 1000)


def bytes_text(octets: int) -> str:
    """Memory in Kubernetes' notation, in the largest binary unit that divides it."""
    for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        size = int(_FACTORS[suffix])
        if octets >= size and octets % size == 0:
            return f"{octets // size}{suffix}"
    return str(octets)
