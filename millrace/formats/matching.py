"""Do the columns of a file suit the table? Names in; refuses missing, repeated and unknown columns by name."""

from collections import Counter
from collections.abc import Iterable, Sequence

from millrace.model.errors import Invalid
from millrace.model.table import Definition

NAMED_AT_MOST = 10


def refuse_mismatch(names: Sequence[str], definition: Definition, where: str, *, hint: str = "") -> None:
    """`where` begins the messages: 'The header of …'; `hint` is added to the remedy."""
    _refuse(f"{where} names {{}} more than once.", _repeated(names, definition), "Give every column once.", hint)
    remedy = f"The table's columns are {listed(column.name for column in definition.columns)}."
    _refuse(f"{where} lacks {{}}.", missing(names, definition), remedy, hint)
    if definition.table.unknown_fields == "reject":
        remedy += " Remove the others, or declare unknown_fields: ignore."
        _refuse(f"{where} has {{}}, which the table does not know.", unknown(names, definition), remedy, hint)


def missing(names: Iterable[str], definition: Definition) -> list[str]:
    """The columns that rows cannot do without and that are not there."""
    given, keys = set(names), set(definition.table.primary_key)
    return [
        column.name
        for column in definition.columns
        if column.name not in given and not column.has_default and (not column.nullable or column.name in keys)
    ]


def unknown(names: Iterable[str], definition: Definition) -> list[str]:
    known = {column.name for column in definition.columns}
    return [name for name in names if name not in known]


def listed(names: Iterable[str]) -> str:
    """The first few names and how many more there are."""
    every = list(names)
    shown = ", ".join(f"{name!r:.80}" for name in every[:NAMED_AT_MOST])
    return shown if len(every) <= NAMED_AT_MOST else f"{shown} and {len(every) - NAMED_AT_MOST} more"


def _repeated(names: Sequence[str], definition: Definition) -> list[str]:
    known = {column.name for column in definition.columns}
    return [name for name, times in Counter(names).items() if times > 1 and name in known]


def _refuse(message: str, names: list[str], remedy: str, hint: str) -> None:
    if names:
        noun = "column" if len(names) == 1 else "columns"
        raise Invalid(message.format(f"the {noun} {listed(names)}"), remedy=f"{hint} {remedy}".strip())
