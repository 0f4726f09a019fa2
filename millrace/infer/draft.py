"""A draft of a declaration: columns, dialect, key and the columns left out; and its document. The names of a file become
valid names of a table."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millrace.declare.table import parse_table
from millrace.infer.described import described
from millrace.infer.evidence import Evidence, fitting
from millrace.infer.keys import KeyFinder, may_be_key
from millrace.model.columns import MAX_COLUMNS, RESERVED, Column, column_of
from millrace.model.formats import format_named
from millrace.model.names import MAX_NAME
from millrace.model.table import CsvDialect, Definition, define

_LONGEST = 255
_FIRST_PRINTABLE = 32


@dataclass(frozen=True, slots=True)
class Draft:
    """`left_out`: columns of the file that the table does not have, each with the reason. `remarks`: sentences for the person
    who reads the proposal. `footers`: the lines of rows at the end that are no rows of the table."""

    table: str
    file_type: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    csv: CsvDialect | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    footers: tuple[int, ...] = ()

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
            if self.csv.skip_lines:
                document["csv"]["skip_lines"] = self.csv.skip_lines
        fields, defaults = described(self.columns)
        if defaults:
            document["written"] = defaults
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


def proposed(name: str, shown: Evidence) -> Column | None:
    """The column that a sample's cells suggest; None if no type takes all of them. It is never float: later numbers may need
    more digits."""
    if not shown.cells:
        return column_of(name, "string", nullable=True)
    avro = next(iter(fitting(shown)), None)
    if avro is None:
        return None
    return column_of(name, "double" if avro == "float" else avro, shown.nulls > 0)


def usable(
    names: Sequence[str], column_of_name: Callable[[str], Column | str]
) -> tuple[tuple[Column, ...], dict[str, str]]:
    """The columns of a file, and those left out: for their name, or for the reason that is given instead of a column."""
    left_out, columns = unusable(names), []
    for name in names:
        if name not in left_out:
            found = column_of_name(name)
            if isinstance(found, str):
                left_out[name] = found
            else:
                columns.append(found)
    return tuple(columns), left_out


def unusable(names: Sequence[str]) -> dict[str, str]:
    """The names that no column can have, each with the reason."""
    times, seen = Counter(names), set[str]()
    refused: dict[str, str] = {}
    for number, name in enumerate(names):
        why = "comes behind the last column a table may have"
        if number < MAX_COLUMNS:
            why = _fault(name, times[name], seen)
        if why:
            refused[name] = why
        else:
            seen.add(name.lower())
    return refused


def _fault(name: str, times: int, seen: set[str]) -> str:
    if not name:
        return "has no name"
    if times > 1:
        return f"is named {times} times"
    if name.lower() in seen:
        return "differs from another only by case"
    if name.lower() in RESERVED:
        return "is a name that Millrace keeps for itself"
    if len(name) > _LONGEST or any(ord(letter) < _FIRST_PRINTABLE for letter in name):
        return "is no printable name of up to 255 letters"
    return ""


def table_name(text: str) -> str:
    """A table's name made from a file's."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")[:MAX_NAME]
    return name if re.match("[A-Za-z]", name) else f"table_{name}"[:MAX_NAME].rstrip("_")


def avro_name(text: str) -> str:
    """A name for a record or fixed type inside a schema."""
    return re.sub(r"[^A-Za-z0-9_]", "_", text) if re.match("[A-Za-z_]", text) else "_" + re.sub(r"\W", "_", text)
