"""Rows of one revision of a table in, the same rows in the shape of a later revision out: renamed, cast, with defaults for
added columns and without dropped ones. Also says which files need it, and to people what happens to stored rows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from millrace.arrow.types import arrow_type
from millrace.lake.schema import SYSTEM_COLUMNS
from millrace.model.change_words import shown_value
from millrace.model.changes import AddColumn, Change, DropColumn, RenameColumn, WidenColumn
from millrace.model.columns import RESCUED_COLUMN, Column
from millrace.model.defaults import stored_default
from millrace.model.fields import Field, field_of
from millrace.model.resolution import matched
from millrace.model.table import Definition


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a column's cells come from: its former name, or the column as it was `added`, and its type changes since."""

    column: Column
    source: str | None = None
    added: Column | None = None
    steps: tuple[WidenColumn, ...] = ()

    def is_affected(self, stored: pa.Schema) -> bool:
        name, names = self.column.name, stored.names
        if self.added is not None:
            # Cells of this name belong to a dropped column. They must not come back.
            return name in names or stored_default(self.added) is not None
        if self.source != name:
            return self.source in names or name in names
        if name not in names or all(arrow_type(step.before) == arrow_type(step.after) for step in self.steps):
            return False
        # Some readers cast a few types while they read, but not all readers do.
        return bool(stored.field(name).type != arrow_type(self.column))

    def cells(self, rows: pa.Table) -> Any:
        cells = self._first_cells(rows)
        for step in self.steps:
            cells = _fitted(cells, field_of(step.before), field_of(step.after), arrow_type(step.after))
        return _cast(cells, arrow_type(self.column))

    def _first_cells(self, rows: pa.Table) -> Any:
        if self.added is not None:
            # Stored rows get the default at the time of the change. The present default is for new rows.
            return _repeated(stored_default(self.added), arrow_type(self.added), rows.num_rows)
        if self.source in rows.column_names:
            return rows[self.source].combine_chunks()
        return pa.nulls(rows.num_rows, arrow_type(self.column))


@dataclass(frozen=True, slots=True)
class Reshape:
    """The columns of the later revision in order, each with its origin."""

    origins: tuple[_Origin, ...]

    @staticmethod
    def along(before: Definition, changes: Iterable[Change], after: Definition) -> "Reshape":
        known = {column.name: _Origin(column, source=column.name) for column in before.columns}
        for change in changes:
            match change:
                case AddColumn(column):
                    known[column.name] = _Origin(column, added=column)
                case DropColumn(name):
                    del known[name]
                case RenameColumn(old, new):
                    known[new] = known.pop(old)
                case WidenColumn(name):
                    known[name] = replace(known[name], steps=(*known[name].steps, change))
        return Reshape(tuple(replace(known[column.name], column=column) for column in after.columns))

    def is_needed(self, stored: pa.Schema) -> bool:
        """Whether a file with these columns must be rewritten. If not, readers read it correctly as it is."""
        return any(origin.is_affected(stored) for origin in self.origins)

    def adds(self, name: str) -> bool:
        """Whether the column is one that the earlier revision did not have."""
        return any(origin.column.name == name and origin.added is not None for origin in self.origins)

    def rows(self, rows: pa.Table) -> pa.Table:
        columns = {origin.column.name: origin.cells(rows) for origin in self.origins}
        ours = {field.name: rows[field.name] for field in SYSTEM_COLUMNS if field.name in rows.column_names}
        return pa.table({**columns, **ours})


def delta_ddl(changes: Sequence[Change], files: int | None = None) -> list[str]:
    """One line per change that the Delta sink makes. `files`: the number of the table's data files, if known."""
    return [f"delta: {line}" for change in changes if (line := _delta(change, files))]


def _delta(change: Change, files: int | None) -> str | None:
    rewrites = "rewrites the table's files" if files is None else f"rewrites {files} file{'s' * (files != 1)}"
    match change:
        case AddColumn(column) if stored_default(column) is not None:
            value = shown_value(column.default)
            return f"add column {column.name} {arrow_type(column)}, existing rows get {value} ({rewrites})"
        case AddColumn(column):
            return f"add column {column.name} {arrow_type(column)}, existing rows have null (metadata only)"
        case DropColumn(name):
            what = "what was rescued is gone" if name == RESCUED_COLUMN else "its values are gone"
            return f"drop column {name}, {what} (metadata only)"
        case RenameColumn(old, new):
            return f"rename column {old} to {new} ({rewrites})"
        case WidenColumn(name, before, after) if arrow_type(before) != arrow_type(after):
            return f"change column {name} from {arrow_type(before)} to {arrow_type(after)} ({rewrites})"
    return None


def _repeated(value: Any, kind: pa.DataType, rows: int) -> Any:
    return pa.nulls(rows, kind) if value is None else pa.repeat(pa.array([value], kind)[0], rows)


def _fitted(cells: Any, was: Field, becomes: Field, kind: pa.DataType) -> Any:
    """Cells as cells of a wider type, at any depth."""
    if cells.type == kind:
        return cells
    if was.kind == becomes.kind == "record":
        return _fitted_record(cells, was, becomes, kind)
    if was.kind == becomes.kind == "array":
        values = _fitted(cells.values, was.element(), becomes.element(), kind.value_type)
        return pa.ListArray.from_arrays(cells.offsets, values, kind, mask=_mask(cells))
    if was.kind == becomes.kind == "map":
        items = _fitted(cells.items, was.element(), becomes.element(), kind.item_type)
        return pa.MapArray.from_arrays(cells.offsets, cells.keys, items, kind, mask=_mask(cells))
    return _cast(cells, kind)


def _fitted_record(cells: Any, was: Field, becomes: Field, kind: pa.DataType) -> Any:
    pairs = matched(was.inner_fields(), becomes.inner_fields())
    fields: Sequence[Any] = [kind.field(number) for number in range(kind.num_fields)]
    parts = []
    for part, field in zip(becomes.inner_fields(), fields, strict=True):
        if part.name in pairs:
            former = pairs[part.name]
            parts.append(_fitted(cells.field(former.name), former, part, field.type))
        else:
            parts.append(_repeated(stored_default(part), field.type, len(cells)))
    return pa.StructArray.from_arrays(parts, fields=fields, mask=_mask(cells))


def _mask(cells: Any) -> Any:
    return cells.is_null() if cells.null_count else None


def _cast(cells: Any, kind: pa.DataType) -> Any:
    if cells.type == kind:
        return cells
    if pa.types.is_binary(cells.type) and pa.types.is_string(kind):
        return _as_text(cells)
    # Some integers are no floats. Widening means the nearest float.
    return cells.cast(kind, safe=False)


def _as_text(cells: Any) -> Any:
    try:
        return cells.cast(pa.string())
    except pa.ArrowInvalid:
        # Bytes need not be text. A replacement character in a cell is better than a table that cannot be changed.
        texts = [None if cell is None else cell.decode(errors="replace") for cell in cells.to_pylist()]
        return pa.array(texts, pa.string())
