"""Whether the columns of a file suit the table: names in, the column of each name out, or a refusal by name."""

from collections import Counter
from collections.abc import Iterable, Sequence

from millrace.model.columns import DELETED_COLUMN, RESCUED_COLUMN, Column
from millrace.model.errors import Invalid
from millrace.model.fields import assigned
from millrace.model.table import Definition

NAMED_AT_MOST = 10


def readable_columns(definition: Definition, *, deletes: bool = False) -> tuple[Column, ...]:
    """The columns that a file may contain: all but Millrace's own, or the key alone if its rows delete."""
    keys = definition.table.primary_key
    if deletes and keys:
        by_name = {column.name: column for column in definition.columns}
        return tuple(by_name[name] for name in keys)
    return tuple(column for column in definition.columns if column.name != RESCUED_COLUMN)


def unknown(names: Iterable[str], columns: Sequence[Column]) -> list[str]:
    """The names, each once, that belong to no column and are not the column that marks deleted rows."""
    given = list(dict.fromkeys(names))
    known = {*assigned(given, columns).values(), DELETED_COLUMN}
    return [name for name in given if name not in known]


def missing(names: Iterable[str], definition: Definition, *, deletes: bool = False) -> list[str]:
    """The required columns that are not among the names."""
    columns, keys = readable_columns(definition, deletes=deletes), definition.table.primary_key
    there = assigned(names, columns)
    return [
        column.name
        for column in columns
        if column.name not in there and column.default is None and (not column.nullable or column.name in keys)
    ]


def refuse_mismatch(
    names: Sequence[str], definition: Definition, where: str, *, deletes: bool = False, hint: str = ""
) -> None:
    """`where` is the start of each message ('The header of …'). `hint` is added to the remedy."""
    columns = readable_columns(definition, deletes=deletes)
    policy = "ignore" if deletes else definition.table.unknown_fields
    known = {*assigned(names, columns).values(), DELETED_COLUMN}
    repeated = [name for name, times in Counter(names).items() if times > 1 and (name in known or policy == "rescue")]
    _refuse(f"{where} names {{}} more than once.", repeated, "Give every column once.", hint)
    titles = listed(column.header or column.name for column in columns)
    remedy = f"The {'key' if deletes else 'table'}'s columns are {titles}."
    _refuse(f"{where} lacks {{}}.", missing(names, definition, deletes=deletes), remedy, hint)
    if policy == "reject":
        remedy += " Remove the others, or declare unknown_fields: ignore or rescue."
        _refuse(f"{where} has {{}}, which the table does not know.", unknown(names, columns), remedy, hint)


def listed(names: Iterable[str]) -> str:
    """The first few names and the number of the others."""
    every = list(names)
    shown = ", ".join(f"{name!r:.80}" for name in every[:NAMED_AT_MOST])
    return shown if len(every) <= NAMED_AT_MOST else f"{shown} and {len(every) - NAMED_AT_MOST} more"


def _refuse(message: str, names: list[str], remedy: str, hint: str) -> None:
    if names:
        noun = "column" if len(names) == 1 else "columns"
        raise Invalid(message.format(f"the {noun} {listed(names)}"), remedy=f"{hint} {remedy}".strip())
