"""A table's columns as the checker declares them and as the log repeats them: Avro documents in, `Shape` out and back.

Every table has the same first columns; `v1` may be widened, columns `x1`, `x2` … may be added."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

FIRST = (("k", "long"), ("w", "string"), ("v1", "int"), ("v2", "string"), ("v3", "double"), ("h", "long"))
DEFAULT = 7


@dataclass(frozen=True, slots=True)
class Column:
    """`default` is None for a column that may be null instead."""

    name: str
    kind: str
    nullable: bool = False
    default: int | None = None

    def to_avro(self) -> dict[str, Any]:
        if self.nullable:
            return {"name": self.name, "type": ["null", self.kind], "default": None}
        spoken = {"name": self.name, "type": self.kind}
        return spoken if self.default is None else {**spoken, "default": self.default}


@dataclass(frozen=True, slots=True)
class Shape:
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def added(self) -> tuple[str, ...]:
        return self.names[len(FIRST) :]

    @property
    def is_wide(self) -> bool:
        return self.column("v1").kind == "long"

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def widened(self) -> "Shape":
        return Shape(tuple(replace(c, kind="long") if c.name == "v1" else c for c in self.columns))

    def with_next(self, *, default: int | None = None) -> "Shape":
        """One more column, that may be null or has a default."""
        return Shape((*self.columns, Column(self.next_name, "long", default is None, default)))

    @property
    def next_name(self) -> str:
        return f"x{len(self.columns) - len(FIRST) + 1}"

    def to_avro(self, name: str) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [column.to_avro() for column in self.columns]}


FIRST_SHAPE = Shape(tuple(Column(name, kind) for name, kind in FIRST))


def from_avro(schema: Mapping[str, Any]) -> Shape:
    return Shape(tuple(_column(field) for field in schema["fields"]))


def _column(field: Mapping[str, Any]) -> Column:
    kind = field["type"]
    if isinstance(kind, list):
        return Column(field["name"], next(branch for branch in kind if branch != "null"), nullable=True)
    return Column(field["name"], kind, default=field.get("default"))
