"""The kind of an expression's value, from the columns' declared types alone. Refuses an expression that has none."""

from collections.abc import Mapping
from datetime import date, datetime

import pyarrow as pa
import pyarrow.compute as pc

from millrace.model import stored_types as stored_kinds
from millrace.model.columns import Column
from millrace.model.errors import Invalid
from millrace.model.expressions import COMPARISONS, Call, ColumnName, Expression, Literal

NUMBER, TEXT, TRUTH, DATE, MOMENT, NULL, OTHER = "number", "text", "truth", "date", "moment", "null", "other"
_NUMBERS = (
    stored_kinds.INT32, stored_kinds.INT64, stored_kinds.FLOAT32, stored_kinds.FLOAT64, stored_kinds.DECIMAL,
)  # fmt: skip
_KINDS = {
    **dict.fromkeys(_NUMBERS, NUMBER),
    stored_kinds.STRING: TEXT,
    stored_kinds.BOOLEAN: TRUTH,
    stored_kinds.DATE: DATE,
    stored_kinds.TIMESTAMP: MOMENT,
}
_RESULTS = {"length": NUMBER, "starts_with": TRUTH, "ends_with": TRUTH, "contains": TRUTH, "matches": TRUTH}


def kind_of_column(column: Column) -> str:
    return _KINDS.get(column.stored.kind, OTHER)


def kind_of(expression: Expression, kinds: Mapping[str, str]) -> str:
    match expression:
        case ColumnName(name):
            if name not in kinds:
                raise Invalid(f"The expression names {name!r:.60}, which is no column.")
            return kinds[name]
        case Literal(value):
            return _kind_of_literal(value)
        case Call(what, parts):
            return _kind_of_call(what, parts, kinds)


def _kind_of_literal(value: object) -> str:
    if value is None:
        return NULL
    return TRUTH if isinstance(value, bool) else TEXT if isinstance(value, str) else NUMBER


def _kind_of_call(what: str, parts: tuple[Expression, ...], kinds: Mapping[str, str]) -> str:
    found = [kind_of(part, kinds) for part in parts]
    if what == "is_null":
        return TRUTH
    if what in ("and", "or", "not"):
        return _all_are(TRUTH, what, found)
    if what in ("+", "-", "*", "/", "neg", "abs"):
        return _all_are(NUMBER, what, found)
    if what in COMPARISONS or what in ("in", "coalesce"):
        return _alike(what, parts, found)
    _all_are(TEXT, what, found)
    if what == "matches":
        refuse_pattern(parts[1].value if isinstance(parts[1], Literal) else None)
    elif len(parts) == 2 and not (isinstance(parts[1], Literal) and isinstance(parts[1].value, str)):
        raise Invalid(f"{what} looks for no text.", remedy="Look for a text in quotes.")
    return _RESULTS.get(what, TEXT)


def _all_are(kind: str, what: str, found: list[str]) -> str:
    for other in found:
        if other not in (kind, NULL):
            raise Invalid(f"{what!r} is asked of a {other}.", remedy=f"It takes a {kind}.")
    return kind


def _alike(what: str, parts: tuple[Expression, ...], found: list[str]) -> str:
    """Compared values must be of one kind. Texts that are compared with a date or a timestamp are read as such."""
    known = {kind for kind in found if kind != NULL}
    timed = known & {DATE, MOMENT}
    if len(timed) == 1 and known <= {TEXT, *timed}:
        for part, kind in zip(parts, found, strict=True):
            if isinstance(part, Literal) and isinstance(part.value, str):
                read_time(part.value)
            elif kind == TEXT:
                raise Invalid(f"{what!r} compares a text with a {timed.pop()}.", remedy="Write the moment in quotes.")
        known = timed
    if len(known) > 1 or OTHER in known:
        raise Invalid(f"{what!r} is asked of {' and '.join(sorted(known))}.", remedy="Compare values of one kind.")
    return TRUTH if what != "coalesce" else next(iter(known), NULL)


def read_time(text: str) -> datetime | date:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(
            f"{text!r:.40} is no date and no moment.", remedy="Write 2024-01-31 or 2024-01-31T12:00:00Z."
        ) from None


def refuse_pattern(pattern: object) -> None:
    """Refuses what RE2 cannot read. RE2 has no look-around and no back references, and always takes linear time."""
    try:
        if isinstance(pattern, str):
            pc.match_substring_regex(pa.array(["x"]), pattern)
            return
    except pa.ArrowInvalid as error:
        raise Invalid(
            f"The pattern {pattern!r:.60} is not understood: {error}.", remedy="Write an RE2 pattern."
        ) from None
    raise Invalid("A pattern must be a text in quotes.")
