"""Fields of an Avro schema, at any depth: a declared type in, its parts and its name for people out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millrace.model.columns import Column, logical_type
from millrace.model.stored_types import Avro

_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a field, item or value inside one. `avro` has no null branch. `fills_in`: rows may leave it out."""

    name: str
    avro: Avro
    nullable: bool
    aliases: tuple[str, ...] = ()
    default: Any = None
    header: str | None = None

    @property
    def kind(self) -> str:
        return kind_of(self.avro)

    @property
    def fills_in(self) -> bool:
        return self.nullable or self.default is not None

    def spelled(self) -> str:
        """The type as people write it: nullable int, decimal(10,2), array of long."""
        return f"nullable {spelled(self.avro)}" if self.nullable else spelled(self.avro)

    def inner_fields(self) -> list["Field"]:
        return [_field(field["type"], field) for field in self.avro["fields"]]

    def element(self) -> "Field":
        """The element of an array, or the value of a map."""
        return _field(self.avro["items" if self.kind == "array" else "values"], {})

    def shape(self) -> tuple[object, ...]:
        """Equal for equal types. Names of types and descriptions do not matter."""
        inner: object = spelled(self.avro)
        if self.kind == "record":
            inner = tuple((part.name, part.shape()) for part in self.inner_fields())
        elif self.kind in ("array", "map"):
            inner = self.element().shape()
        elif self.kind == "enum":
            inner = frozenset(self.avro["symbols"])
        return self.nullable, self.kind, inner


def assigned(names: Iterable[str], fields: Sequence[Field] | Sequence[Column]) -> dict[str, str]:
    """For each field that is among the names: its name, and the name found there, which may be its header or an alias."""
    given = set(names)
    found = {field.name: field.header for field in fields if field.header is not None and field.header in given}
    free = given - set(found.values())
    found |= {field.name: field.name for field in fields if field.name not in found and field.name in free}
    if len(found) == len(fields):
        return found
    free -= set(found.values())
    for field in fields:
        former = next((alias for alias in field.aliases if alias in free), None)
        if field.name not in found and former is not None:
            found[field.name] = former
            free.discard(former)
    return found


def field_of(column: Column) -> Field:
    return Field(column.name, bare(column.avro), column.nullable, column.aliases, column.default)


def _field(avro: Avro, described: Mapping[str, Any]) -> Field:
    inner = next(branch for branch in avro if branch != "null") if isinstance(avro, list) else avro
    nullable = isinstance(avro, list) and "null" in avro
    aliases = tuple(described.get("aliases", ()))
    return Field(described.get("name", ""), bare(inner), nullable, aliases, described.get("default"))


def bare(avro: Avro) -> Avro:
    """A type without needless wrapping: {"type": {"type": "int"}} is {"type": "int"}."""
    while isinstance(avro, dict) and isinstance(avro["type"], dict):
        avro = avro["type"]
    return avro


def kind_of(avro: Avro) -> str:
    return avro if isinstance(avro, str) else str(avro["type"])


def spelled(avro: Avro) -> str:
    logical = logical_type(avro)
    if logical == "decimal":
        return f"decimal({avro['precision']},{avro.get('scale', 0)})"
    return logical or _spelled_kind(Field("", avro, False))


def _spelled_kind(field: Field) -> str:
    match field.kind:
        case "enum":
            return f"enum({_some(field.avro['symbols'])})"
        case "fixed":
            return f"fixed({field.avro['size']})"
        case "array" | "map":
            return f"{field.kind} of {field.element().spelled()}"
        case "record":
            return f"record({_some([f'{part.name} {part.spelled()}' for part in field.inner_fields()])})"
    return field.kind


def _some(words: Sequence[str]) -> str:
    return ", ".join(words[:_SHOWN]) + (f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else "")
