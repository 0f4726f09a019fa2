"""A condition that rows of a table must meet, simple enough to be compared with statistics. A value; it knows no library."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

EQUAL, LESS, GREATER = "=", "<=", ">="


@dataclass(frozen=True, slots=True)
class Condition:
    """A column is equal to one of the values, or at most or at least the first one. Numbers are Decimals."""

    column: str
    comparison: str
    values: tuple[Decimal | str, ...]

    def to_json(self) -> list[Any]:
        told = [{"number": str(value)} if isinstance(value, Decimal) else {"text": value} for value in self.values]
        return [self.column, self.comparison, told]

    @classmethod
    def from_json(cls, told: Sequence[Any]) -> "Condition":
        column, comparison, values = told
        read = [Decimal(value["number"]) if "number" in value else str(value["text"]) for value in values]
        return cls(str(column), str(comparison), tuple(read))


Alternatives = Sequence[Sequence[Condition]]
"""Rows are asked for that meet all conditions of one of these."""
