"""What an Avro schema can make of few bytes: values that take none, and types that are written once and used many times.

Refuses a schema by which a short file could fill the memory of whoever decodes it."""

from dataclasses import dataclass, field
from typing import Any

from millrace.model.errors import Invalid

MOST_TYPES = 50_000
# So many values without bytes may stand in an item of an array or a map.
MOST_FREE = 16
_NAMED = ("record", "error", "enum", "fixed")
_REMEDY = "Write the file with a simpler schema."


@dataclass(frozen=True, slots=True)
class _Weight:
    """The types that a type holds when names are written out, those of its values that take no bytes, and the bytes that a
    value takes at least."""

    types: int = 1
    free: int = 0
    least: int = 1


def free_values(schema: dict[str, Any]) -> int:
    """How many values of a row take no bytes."""
    return _Scale().weigh(schema, "").free


@dataclass(slots=True)
class _Scale:
    # None while a type is being weighed: it holds itself if it is met then.
    known: dict[str, _Weight | None] = field(default_factory=dict)

    def weigh(self, avro: Any, space: str) -> _Weight:
        if isinstance(avro, list):
            return self._union([self.weigh(branch, space) for branch in avro if branch != "null"])
        if isinstance(avro, dict):
            return self._complex(avro, space)
        if avro == "null":
            return _Weight(free=1, least=0)
        name = _full(str(avro), space)
        if name in self.known:
            weight = self.known[name]
            if weight is None:
                raise Invalid(f"Its type {name!r:.80} holds itself.", remedy="Write a flat type.")
            return weight
        return _Weight()

    def _complex(self, avro: dict[str, Any], space: str) -> _Weight:
        kind = avro.get("type")
        if kind in _NAMED:
            return self._named(avro, space)
        if kind in ("array", "map"):
            return self._repeated(self.weigh(avro.get("items" if kind == "array" else "values"), space), kind)
        return self.weigh(kind, space)

    def _named(self, avro: dict[str, Any], space: str) -> _Weight:
        name, space = str(avro.get("name", "")), str(avro.get("namespace") or space)
        name = _full(name, space)
        self.known[name] = None
        weight = self._defined(avro, name.rpartition(".")[0])
        self.known[name] = weight
        return weight

    def _defined(self, avro: dict[str, Any], space: str) -> _Weight:
        if avro["type"] == "fixed":
            size = avro.get("size")
            return _Weight(free=0 if size else 1, least=1 if size else 0)
        fields = avro.get("fields") if avro["type"] != "enum" else None
        if not isinstance(fields, list):
            return _Weight()
        parts = [self.weigh(part.get("type"), space) for part in fields if isinstance(part, dict)]
        types = 1 + sum(part.types for part in parts)
        if types > MOST_TYPES:
            raise Invalid(f"Its schema holds more than {MOST_TYPES:,} types.", remedy=_REMEDY)
        least = sum(part.least for part in parts)
        return _Weight(types, sum(part.free for part in parts) + (least == 0), least)

    def _repeated(self, item: _Weight, kind: str) -> _Weight:
        if item.free > MOST_FREE or (kind == "array" and item.least == 0):
            raise Invalid(f"Its schema has a type {kind} of values that take no bytes.", remedy=_REMEDY)
        return _Weight(1 + item.types)

    def _union(self, branches: list[_Weight]) -> _Weight:
        # The number of the branch takes a byte.
        return _Weight(
            1 + sum(branch.types for branch in branches), max((branch.free for branch in branches), default=0)
        )


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"
