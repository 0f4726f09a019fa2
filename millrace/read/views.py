"""Tables as DuckDB views: columns, live files and deleted positions in, SQL out. All names and paths are quoted here."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

# DuckDB takes these in a path for a pattern. Other engines may name files so.
_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class TableFiles:
    """A table at one version. `columns` are (name, DuckDB type); `marked` are the files with deleted positions."""

    tenant: str
    table: str
    columns: Sequence[tuple[str, str]]
    whole: Sequence[str]
    marked: Sequence[str]


def view_query(table: TableFiles, dead_table: str) -> str:
    """The table's live rows. `dead_table` is the quoted name of a table (file, position)."""
    parts = []
    if table.whole:
        parts.append(f"SELECT {_outputs(table)} FROM {_read(table, table.whole)} AS f")
    if table.marked:
        is_dead = "f.filename = d.file AND f.file_row_number = d.position"
        source = f"{_read(table, table.marked)} AS f ANTI JOIN {dead_table} AS d ON {is_dead}"
        parts.append(f"SELECT {_outputs(table)} FROM {source}")
    return " UNION ALL ".join(parts) or f"SELECT {_nulls(table)} WHERE false"


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def exact(path: str) -> str:
    """A pattern that only this path meets."""
    return _GLOB.sub(r"[\g<0>]", path)


def texts(values: Sequence[str]) -> str:
    return "[" + ", ".join(text(value) for value in values) + "]"


def _read(table: TableFiles, paths: Sequence[str]) -> str:
    # Read under names of our own: a declared column may have the name "filename", which DuckDB uses for the path.
    # A file that is older than a column gives null.
    fields = ", ".join(
        f"{text(name)}: {{'name': 'c{index}', 'type': {text(kind)}, 'default_value': NULL}}"
        for index, (name, kind) in enumerate(table.columns)
    )
    return f"read_parquet({texts([exact(path) for path in paths])}, schema = MAP {{{fields}}})"


def _outputs(table: TableFiles) -> str:
    return ", ".join(f"f.c{index} AS {identifier(name)}" for index, (name, _) in enumerate(table.columns))


def _nulls(table: TableFiles) -> str:
    return ", ".join(f"CAST(NULL AS {kind}) AS {identifier(name)}" for name, kind in table.columns)
