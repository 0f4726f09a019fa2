"""Changes of a table in, lines for people out: what the Delta sink does to stored rows."""

from collections.abc import Sequence

from millrace.arrow.types import arrow_type
from millrace.lake.reshape import READ_AS_WIDER
from millrace.model.change_words import shown_value
from millrace.model.changes import AddColumn, Change, DropColumn, RenameColumn, WidenColumn
from millrace.model.columns import RESCUED_COLUMN
from millrace.model.defaults import stored_default


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
            how = "metadata only" if (arrow_type(before), arrow_type(after)) in READ_AS_WIDER else rewrites
            return f"change column {name} from {arrow_type(before)} to {arrow_type(after)} ({how})"
    return None
