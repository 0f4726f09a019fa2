"""Fields of a document in, checked values out. Numbers and booleans may be written as text, as in seed 002. A wrong value is
refused by the name of its field."""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from millrace.model.errors import Invalid

NUMBER = re.compile(r"[+-]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,3})?")
WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class DeclarationWarning:
    """A value that is valid but likely a mistake: a warning, or with `--strict` a refusal."""

    field: str
    message: str
    likely: str

    def __str__(self) -> str:
        return f"{self.field} {self.message} {self.likely}"

    def to_dict(self) -> dict[str, str]:
        return {"field": self.field, "message": self.message, "likely": self.likely}


def refuse_warnings(warnings: Collection[DeclarationWarning]) -> None:
    """Refuses if there are warnings, as `--strict` asks."""
    for warning in warnings:
        raise Invalid(f"{warning.field} {warning.message}", remedy=warning.likely, code="doubtful")


def mapping(what: str, given: object, known: Collection[str]) -> Mapping[str, Any]:
    """A mapping with known fields only."""
    if not isinstance(given, Mapping) or not all(isinstance(word, str) for word in given):
        raise Invalid(f"{what} is {given!r:.60}.", remedy=f"Give a mapping with: {', '.join(sorted(known))}.")
    for word in given:
        if word not in known:
            near = get_close_matches(word, known, 1)
            likely = f"Did you mean {near[0]!r}? " if near else ""
            raise Invalid(f"Unknown field {word!r} in {what}.", remedy=f"{likely}Known: {', '.join(sorted(known))}.")
    return given


def listed(what: str, given: object) -> list[Any]:
    if not isinstance(given, list | tuple):
        raise Invalid(f"{what} is {given!r:.60}.", remedy="Give a list.")
    return list(given)


def text(what: str, given: object, most: int = 1000, least: int = 1) -> str:
    if not isinstance(given, str) or not least <= len(given) <= most or "\0" in given:
        raise Invalid(f"{what} is {given!r:.60}.", remedy=f"Give a text of {least} to {most} characters.")
    return given


def one_of(what: str, value: object, known: tuple[str, ...]) -> str:
    if value not in known:
        raise Invalid(f"{what} is {value!r:.60}.", remedy=f"Choose one of: {', '.join(known)}.")
    return str(value)


def flag(what: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise Invalid(f"{what} is {value!r:.60}.", remedy="Write true or false.")


def number(what: str, given: object, least: float, most: float) -> float:
    spelled = str(given) if isinstance(given, int | float | str) and not isinstance(given, bool) else ""
    value = float(spelled) if NUMBER.fullmatch(spelled) else math.nan
    if not least <= value <= most:
        raise Invalid(f"{what} is {given!r:.60}.", remedy=f"Give a number from {least:g} to {most:g}.")
    return value


def whole(what: str, given: object, least: int, most: int) -> int:
    if isinstance(given, float) and given.is_integer():
        given = int(given)
    spelled = str(given) if isinstance(given, int | str) and not isinstance(given, bool) else ""
    value = int(spelled) if WHOLE.fullmatch(spelled) else least - 1
    if not least <= value <= most:
        raise Invalid(f"{what} is {given!r:.60}.", remedy=f"Give a whole number from {least} to {most}.")
    return value
