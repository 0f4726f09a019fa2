"""How rows are spoiled, and what must become of each: a flavour and the shape in force in, the verdict and its reasons out.

About one row in fifty is bad in a known way. Two flavours depend on the schema: `wide` (a number that only a widened `v1`
holds) and `early` (a field that only a later revision knows)."""

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from checker.shapes import Shape

GOOD, DELETE = "good", "delete"
NOT_NUMBER, SHORT, SURPLUS, NO_KEY, BROKEN = "not_number", "short", "surplus", "no_key", "broken"
WIDE, EARLY = "wide", "early"
BY_SCHEMA = (WIDE, EARLY)
BAD_SHARE = 0.02

IN_FORMAT = {
    "csv": (NOT_NUMBER, SHORT, SURPLUS, NO_KEY, WIDE),
    "jsonl": (NOT_NUMBER, SHORT, SURPLUS, NO_KEY, BROKEN, WIDE, EARLY),
}
UNKNOWN_FIELD = "zz"

_REASONS: dict[str, dict[str, tuple[str | None, str]]] = {
    "csv": {
        NOT_NUMBER: ("v1", "type"),
        SHORT: (None, "columns"),
        SURPLUS: (None, "columns"),
        WIDE: ("v1", "range"),
    },
    "jsonl": {
        NOT_NUMBER: ("v1", "type"),
        SHORT: ("h", "required"),
        SURPLUS: (UNKNOWN_FIELD, "unknown_field"),
        BROKEN: (None, "json"),
        WIDE: ("v1", "range"),
    },
}


def choose(rng: np.random.Generator, count: int, file_format: str, share: float = BAD_SHARE) -> npt.NDArray[np.str_]:
    """A flavour for each of `count` rows."""
    bad = IN_FORMAT[file_format]
    picks = rng.integers(0, len(bad), count)
    return np.where(rng.random(count) < share, np.array(bad)[picks], GOOD)


def accepted(shape: Shape, early: str | None) -> Collection[str]:
    """The flavours that pass under a shape; `early` is the field that the file's early rows carry."""
    passing = {GOOD, DELETE}
    if shape.is_wide:
        passing.add(WIDE)
    if early in shape.names:
        passing.add(EARLY)
    return passing


def reason(flavour: str, file_format: str, early: str | None, *, keyed: bool) -> str:
    """The one reason a rejected row must have, as `column:rule`."""
    if flavour == EARLY:
        return spoken(early, "unknown_field")
    if flavour == NO_KEY:
        return spoken("k", "primary_key" if keyed else "required")
    return spoken(*_REASONS[file_format][flavour])


def spoken(column: str | None, rule: str) -> str:
    return f"{column or ''}:{rule}"
