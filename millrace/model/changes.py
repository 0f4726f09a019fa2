"""What happens to a table's columns from one revision to the next, as values that a sink can apply one after the other."""

from dataclasses import dataclass

from millrace.model.columns import Column


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Rows already there take the column's default, else null."""

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
    """Another type or nullability under the name it has after any renaming; every value `before` held has its place in
    `after`. Where only symbols or nullability differ, the two Arrow types are equal and stored rows stay as they are."""

    name: str
    before: Column
    after: Column


Change = AddColumn | DropColumn | RenameColumn | WidenColumn
