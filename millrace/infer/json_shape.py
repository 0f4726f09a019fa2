"""Evidence about JSON values at any depth: parsed values in, a tree of evidence out. Evidence of pieces is merged.

The judge is strict about JSON types: a string is never a number, except for decimals."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import chain
from typing import Any, TypeVar

import orjson
import pyarrow as pa

from millrace.formats.line_cut import line_spans
from millrace.infer.digits import NO_DIGITS, Digits, digits_of_texts
from millrace.infer.evidence import NOTHING, NUMBERS, Evidence, float_evidence, integer_evidence, only, text_evidence
from millrace.infer.tolerance import tolerated
from millrace.model.columns import MAX_COLUMNS
from millrace.model.stored_types import MAX_DEPTH
from millrace.validate.from_jsonl import exact_json

_NEVER_TEXT = (NUMBERS - {"decimal"}) | {"boolean"}
_LONG_LIMIT = float(1 << 63)

Object = dict[str, Any]
Shown = TypeVar("Shown")


@dataclass(frozen=True, slots=True)
class JsonShape:
    """`scalar`: values that are neither object nor list, and nulls. `kinds`: the same values by kind: number, text, boolean.
    `overgrown`: too many fields or levels for a table."""

    scalar: Evidence = NOTHING
    objects: int = 0
    fields: dict[str, "JsonShape"] = field(default_factory=dict)
    lists: int = 0
    items: "JsonShape | None" = None
    overgrown: bool = False
    kinds: dict[str, Evidence] = field(default_factory=dict)

    @property
    def usual(self) -> Evidence:
        """Evidence of the kind of value that nearly all have, if not all are of one kind."""
        if self.scalar.fits or not self.kinds:
            return self.scalar
        most = max(self.kinds.values(), key=lambda shown: shown.cells)
        few = self.scalar.cells - most.cells <= tolerated(self.scalar.cells)
        return replace(most, nulls=self.scalar.nulls) if few else self.scalar

    def merged(self, other: "JsonShape") -> "JsonShape":
        names = dict.fromkeys([*self.fields, *other.fields])
        overgrown = self.overgrown or other.overgrown or len(names) > MAX_COLUMNS
        fields = {} if overgrown else {name: self._field(name).merged(other._field(name)) for name in names}
        items = self.items.merged(other.items) if self.items and other.items else self.items or other.items
        return JsonShape(
            self.scalar.merged(other.scalar),
            self.objects + other.objects,
            fields,
            self.lists + other.lists,
            items,
            overgrown,
            {
                kind: self.kinds.get(kind, NOTHING).merged(other.kinds.get(kind, NOTHING))
                for kind in dict.fromkeys([*self.kinds, *other.kinds])
            },
        )

    def _field(self, name: str) -> "JsonShape":
        return self.fields.get(name) or JsonShape(Evidence(nulls=self.objects))


class _LongNumber(Exception):
    """The fast parser rounded a whole number beyond 64 bits: the text must be parsed exactly."""


def looked_at(body: bytes, look: Callable[[list[Object]], Shown]) -> tuple[list[Object], Shown]:
    """The objects of a JSON Lines text in order, and what they show."""
    try:
        objects = _objects(body, exact=False)
        return objects, look(objects)
    except _LongNumber:
        objects = _objects(body, exact=True)
        return objects, look(objects)


def _objects(body: bytes, *, exact: bool) -> list[Object]:
    spans = line_spans(body)
    lines = [body[start:end] for start, end in zip(spans.starts.tolist(), spans.ends.tolist(), strict=True)]
    values: list[Any] = []
    if not exact:
        with suppress(orjson.JSONDecodeError):
            values = orjson.loads(b"[" + b",".join(lines) + b"]")
    # Joined lines may be valid where a single line is not, such as "1],[2".
    if len(values) != len(lines):
        values = [_parsed(line, exact_json if exact else orjson.loads) for line in lines]
    return [value for value in values if type(value) is dict]


def _parsed(line: bytes, loads: Callable[[bytes], Any]) -> Any:
    try:
        return loads(line)
    except orjson.JSONDecodeError:
        return None


def shape_of(values: Sequence[Any], depth: int = 0) -> JsonShape:
    """The shape of many values: of one field in many objects, or the items of many lists."""
    kinds = set(map(type, values))
    nulls = sum(value is None for value in values) if type(None) in kinds else 0
    shape = JsonShape(Evidence(nulls=nulls))
    for kind in kinds - {type(None)}:
        of_kind = values if len(kinds) == 1 else [value for value in values if type(value) is kind]
        shape = shape.merged(_of_kind(kind, of_kind, depth))
    return shape


def _of_kind(kind: type, values: Sequence[Any], depth: int) -> JsonShape:
    if kind is dict:
        return object_shape(values, depth)
    if kind is list:
        items = [item for value in values for item in value]
        return JsonShape(lists=len(values), items=_deeper(items, depth), overgrown=depth >= MAX_DEPTH)
    shown = _scalars(kind, values)
    return JsonShape(shown, kinds={"text" if kind is str else "boolean" if kind is bool else "number": shown})


def object_shape(objects: Sequence[Object], depth: int = 0) -> JsonShape:
    names = dict.fromkeys(chain.from_iterable(objects))
    if len(names) > MAX_COLUMNS or depth >= MAX_DEPTH:
        return JsonShape(objects=len(objects), overgrown=True)
    fields = {name: _deeper([value.get(name) for value in objects], depth) for name in names}
    return JsonShape(objects=len(objects), fields=fields)


def _deeper(values: Sequence[Any], depth: int) -> JsonShape:
    return shape_of(values, depth + 1) if depth < MAX_DEPTH else JsonShape()


def _scalars(kind: type, values: Sequence[Any]) -> Evidence:
    if kind is bool:
        return only("boolean", len(values))
    if kind is int:
        return integer_evidence(min(values), max(values), len(values))
    if kind is str:
        shown = text_evidence(pa.array(values, pa.string()))
        return replace(shown, fits=shown.fits - _NEVER_TEXT)
    if kind is Decimal:
        digits = digits_of_texts(pa.array(list(map(str, values)), pa.string()))
        fits = frozenset({"double"} if digits is None else {"double", "decimal"})
        return Evidence(len(values), 0, fits, (digits or NO_DIGITS).merged(Digits(fraction=1)))
    if max(values) >= _LONG_LIMIT or min(values) < -_LONG_LIMIT:
        raise _LongNumber
    return float_evidence(pa.array(values, pa.float64()))
