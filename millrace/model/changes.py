"""Changes of a table's columns between two revisions, as values that a sink applies in order."""

from dataclasses import dataclass

from millrace.model.columns import Column


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Existing rows take the column's default, else null."""

    column: Column


@dataclass(frozen=True, slots=True)
class DropColumn:
    name: str


@dataclass(frozen=True, slots=True)
class RenameColumn:
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class WidenColumn:
    """Another type or nullability. `name` is the name after any renaming. Each value of `before` is also a value of `after`.
    Where only symbols or nullability differ, the stored types are equal and stored rows do not change."""

    name: str
    before: Column
    after: Column


Change = AddColumn | DropColumn | RenameColumn | WidenColumn
