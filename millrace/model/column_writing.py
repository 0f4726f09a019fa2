"""A table's columns with what the schema and the table's defaults say about how they are written in files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from millrace.model.columns import RESERVED, Column, logical_type
from millrace.model.errors import Invalid
from millrace.model.fields import Field, bare, field_of
from millrace.model.written import COLUMN_WORDS, USED_BY, WrittenDefaults, header_of, says_something, written_of


def with_writing(columns: Sequence[Column], schema: Mapping[str, Any], defaults: WrittenDefaults) -> tuple[Column, ...]:
    """Refuses attributes that do not suit a column, and headers that two columns share."""
    written = tuple(
        replace(
            column,
            header=header_of(column.name, words),
            written=written_of(column.name, meaning_of(column), words, defaults),
        )
        for column, words in zip(columns, schema["fields"], strict=True)
    )
    _refuse_shared_headers(written)
    return written


def meaning_of(column: Column) -> str:
    """The name that decides how cells are read: the column's logical type, else its kind."""
    avro = bare(column.avro)
    return logical_type(avro) or (avro if isinstance(avro, str) else str(avro["type"]))


def has_writing(schema: Mapping[str, Any]) -> bool:
    """Whether a column says how it is written."""
    return any(says_something(words) for words in schema["fields"])


def refuse_misplaced(columns: Sequence[Column]) -> None:
    """Refuses attributes inside a type, where nobody would read them."""
    for column in columns:
        for word, where in _misplaced(field_of(column), column.name):
            raise Invalid(
                f"{word} stands inside the type of {where!r}.",
                remedy=f"Write it beside the type of the column: {{name: {column.name}, type: …, {word}: …}}.",
            )


def _misplaced(field: Field, where: str) -> Iterator[tuple[str, str]]:
    if not isinstance(field.avro, dict):
        return
    yield from ((word, where) for word in USED_BY if word in field.avro)
    if field.kind == "record":
        for words, part in zip(field.avro["fields"], field.inner_fields(), strict=True):
            inside = f"{where}.{part.name}"
            yield from ((word, inside) for word in COLUMN_WORDS if word in words)
            yield from _misplaced(part, inside)
    elif field.kind in ("array", "map"):
        yield from _misplaced(field.element(), where)


def _refuse_shared_headers(columns: Sequence[Column]) -> None:
    names = {name: column.name for column in columns for name in (*column.aliases, column.name)}
    owners: dict[str, str] = {}
    for column in columns:
        header = column.header
        if header is None:
            continue
        if header.lower() in RESERVED:
            raise Invalid(f"Column {column.name!r}: header is {header!r}, which is reserved for Millrace.")
        other = owners.setdefault(header, column.name)
        if other != column.name:
            raise Invalid(
                f"The columns {other!r} and {column.name!r} both have the header {header!r}.",
                remedy="A title belongs to one column.",
            )
        if names.get(header, column.name) != column.name:
            raise Invalid(
                f"Column {column.name!r}: header is {header!r}, which is a name of column {names[header]!r}.",
                remedy="A file with this title could mean either. Rename one of the columns.",
            )
