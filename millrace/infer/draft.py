"""A draft of a declaration: columns, dialect, key and the columns left out; and its document."""

from dataclasses import dataclass, field, replace
from typing import Any

from millrace.declare.table import parse_table
from millrace.infer.choose import fitting
from millrace.infer.column_names import avro_name
from millrace.infer.evidence import Evidence
from millrace.infer.keys import KeyFinder, may_be_key
from millrace.model.columns import Column, column_of
from millrace.model.formats import format_named
from millrace.model.stored_types import Avro
from millrace.model.table import CsvDialect, Definition, define


@dataclass(frozen=True, slots=True)
class Draft:
    """`left_out`: columns of the file that the table does not have, each with the reason."""

    table: str
    file_type: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    csv: CsvDialect | None = None
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def is_strict(self) -> bool:
        """Whether the format never reads a number as text."""
        found = format_named(self.file_type)
        return found is not None and found.is_strict

    def without(self, name: str, why: str) -> "Draft":
        return replace(
            self,
            columns=tuple(column for column in self.columns if column.name != name),
            key=() if name in self.key else self.key,
            left_out={**self.left_out, name: why},
        )

    def retyped(self, changed: Column) -> "Draft":
        columns = tuple(changed if column.name == changed.name else column for column in self.columns)
        return replace(self, columns=columns, key=() if changed.nullable and changed.name in self.key else self.key)

    def document(self) -> dict[str, Any]:
        """The document that `millrace apply` takes."""
        document: dict[str, Any] = {"table": self.table, "file_type": self.file_type}
        if self.csv is not None:
            names = ("header", "delimiter", "quote", "null_text", "encoding")
            document["csv"] = {name: getattr(self.csv, name) for name in names}
        fields = [{"name": column.name, "type": _declared(column)} for column in self.columns]
        document["schema"] = {"type": "record", "name": avro_name(self.table), "fields": fields}
        document["primary_key"] = list(self.key)
        if self.left_out:
            document["unknown_fields"] = "ignore"
        return document

    def definition(self) -> Definition:
        return define("nobody", parse_table(self.document()), 0)


@dataclass(frozen=True, slots=True)
class Drafted:
    """A draft, and the number of rows it is based on."""

    draft: Draft
    rows: int


def with_key(draft: Draft, watch: KeyFinder) -> Draft:
    """The draft with the primary key that its rows suggest. Columns of a key are never null."""
    key = watch.likely(draft.table, [column for column in draft.columns if may_be_key(column.avro)])
    columns = (replace(column, nullable=column.nullable and column.name not in key) for column in draft.columns)
    return replace(draft, columns=tuple(columns), key=key)


def _declared(column: Column) -> Avro:
    return ["null", column.avro] if column.nullable else column.avro


def proposed(name: str, shown: Evidence) -> Column | None:
    """The column that a sample's cells suggest; None if no type takes all of them. It is never float: later numbers may need
    more digits."""
    if not shown.cells:
        return column_of(name, "string", nullable=True)
    avro = next(iter(fitting(shown)), None)
    if avro is None:
        return None
    return column_of(name, "double" if avro == "float" else avro, shown.nulls > 0)
