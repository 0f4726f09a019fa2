"""A table's definition for BigQuery: names, types, and the statements that create, change and fill the table.

Names of tenants and tables have passed the name rule. Names of columns are quoted, and replaced if BigQuery does not allow
them. Values become part of a statement only as literals made here."""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence

import pyarrow as pa

from millrace.arrow.types import arrow_type
from millrace.model.changes import AddColumn, Change, DropColumn, RenameColumn, WidenColumn
from millrace.model.columns import DELETED_COLUMN, Column
from millrace.model.defaults import stored_default
from millrace.model.names import checked_name
from millrace.model.table import Definition
from millrace.sink.encoders.arrow_text import cell_text

OWN = (("_version", "INT64"), ("_import", "STRING"), ("_row", "INT64"), (DELETED_COLUMN, "BOOL"))
DEFINITION_LABEL, FLOOR_LABEL = "millrace_definition", "millrace_floor"
MOST_CLUSTERED = 4
MOST_NUMERIC_SCALE, MOST_NUMERIC_DIGITS = 9, 29

_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}", re.ASCII)
_RESERVED = ("_table_", "_file_", "_partition", "_row_timestamp", "__root__", "_colidentifier", "_change_")
_TYPES = {
    pa.bool_(): "BOOL",
    pa.int32(): "INT64",
    pa.int64(): "INT64",
    pa.float32(): "FLOAT64",
    pa.float64(): "FLOAT64",
    pa.string(): "STRING",
    pa.binary(): "BYTES",
    pa.date32(): "DATE",
}
_CLUSTERABLE = ("BOOL", "INT64", "STRING", "DATE", "TIMESTAMP")


def dataset_name(prefix: str, tenant: str) -> str:
    """The tenant's own dataset. BigQuery allows no dashes there, so such a tenant's name gets a digest."""
    name = checked_name("tenant", tenant)
    return f"{prefix}_{name}" if "-" not in name else f"{prefix}_{name.replace('-', '_')}_{_digest(name)}"


def table_name(table: str) -> str:
    """The table with all rows, deleted ones included. No declared name begins with an underscore."""
    return f"_millrace_{checked_name('table', table)}"


def physical(column: str) -> str:
    if _COLUMN.fullmatch(column) and not column.lower().startswith(_RESERVED):
        return column
    return f"{re.sub('[^A-Za-z0-9_]', '_', column)[:150]}_{_digest(column)}"


def quoted(column: str) -> str:
    return f"`{physical(column)}`"


def type_of(kind: pa.DataType) -> str:
    if kind in _TYPES:
        return _TYPES[kind]
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP"
    if pa.types.is_decimal(kind):
        fits = kind.scale <= MOST_NUMERIC_SCALE and kind.precision - kind.scale <= MOST_NUMERIC_DIGITS
        return f"{'NUMERIC' if fits else 'BIGNUMERIC'}({kind.precision}, {kind.scale})"
    return "JSON"


def staged_type(kind: pa.DataType) -> str:
    """The type in the staging table. What a load job has no type for is loaded as text and converted by the MERGE."""
    wanted = type_of(kind).partition("(")[0]
    return "STRING" if wanted in ("JSON", "BIGNUMERIC") else wanted


def key_of(definition: Definition) -> Sequence[str]:
    """What identifies a row. Without a primary key, it is where the row came from."""
    return definition.table.primary_key or ("_import", "_version", "_row")


def create(place: str, definition: Definition) -> str:
    columns = [f"{quoted(column.name)} {type_of(arrow_type(column))}" for column in definition.columns]
    columns += [f"`{name}` {kind}" for name, kind in OWN]
    by_name = {column.name: type_of(arrow_type(column)) for column in definition.columns}
    near = [quoted(name) for name in definition.table.primary_key if by_name[name] in _CLUSTERABLE][:MOST_CLUSTERED]
    clustered = f" CLUSTER BY {', '.join(near)}" if near else ""
    return f"CREATE TABLE `{place}` ({', '.join(columns)}){clustered}"


def create_view(view: str, place: str, definition: Definition) -> str:
    """What readers see: no deleted rows."""
    names = [*(quoted(column.name) for column in definition.columns), "`_version`", "`_import`", "`_row`"]
    return f"CREATE OR REPLACE VIEW `{view}` AS SELECT {', '.join(names)} FROM `{place}` WHERE NOT `{DELETED_COLUMN}`"


def alter(place: str, there: Iterable[str], changes: Iterable[Change]) -> Iterable[str]:
    """The changes that the columns `there` do not have yet: an interrupted attempt continues where it ended."""
    names = {name.lower() for name in there}
    for change in changes:
        match change:
            case AddColumn(column):
                yield f"ALTER TABLE `{place}` ADD COLUMN IF NOT EXISTS {quoted(column.name)} {type_of(arrow_type(column))}"
                yield from _filled(place, column)
            case DropColumn(name):
                yield f"ALTER TABLE `{place}` DROP COLUMN IF EXISTS {quoted(name)}"
            case RenameColumn(old, new) if physical(new).lower() not in names:
                yield f"ALTER TABLE `{place}` RENAME COLUMN {quoted(old)} TO {quoted(new)}"
            case WidenColumn(name, was, becomes) if type_of(arrow_type(was)) != type_of(arrow_type(becomes)):
                yield f"ALTER TABLE `{place}` ALTER COLUMN {quoted(name)} SET DATA TYPE {type_of(arrow_type(becomes))}"


def _filled(place: str, column: Column) -> Iterable[str]:
    """Existing rows get the default. Rows that came in the meantime under the new definition have a value or null."""
    default = stored_default(column)
    if default is not None:
        value = _literal(cell_text(default, arrow_type(column)), column)
        yield f"UPDATE `{place}` SET {quoted(column.name)} = {value} WHERE {quoted(column.name)} IS NULL"


def _literal(text: str, column: Column) -> str:
    kind = type_of(arrow_type(column))
    if kind == "BYTES":
        return f'FROM_HEX("{text.removeprefix(chr(92) + "x")}")'
    # What JSON escapes, BigQuery's text literals escape in the same way.
    literal = json.dumps(text)
    return f"PARSE_JSON({literal})" if kind == "JSON" else f"CAST({literal} AS {kind.partition('(')[0]})"


def merge(place: str, staging: str, definition: Definition) -> str:
    """The guard: a row replaces another only if its version is greater, deleted or not."""
    kinds = {column.name: type_of(arrow_type(column)) for column in definition.columns} | dict(OWN)
    key = key_of(definition)
    values = {name: _value(f"new.{quoted(name)}", kind) for name, kind in kinds.items()}
    same = " AND ".join(f"there.{quoted(name)} = new.{quoted(name)}" for name in key)
    changed = ", ".join(f"{quoted(name)} = {value}" for name, value in values.items() if name not in key)
    replaced = f"WHEN MATCHED AND new.`_version` > there.`_version` THEN UPDATE SET {changed} "
    return (
        f"MERGE `{place}` AS there USING `{staging}` AS new ON {same} "
        f"{replaced if definition.table.primary_key else ''}"
        f"WHEN NOT MATCHED THEN INSERT ({', '.join(map(quoted, values))}) VALUES ({', '.join(values.values())})"
    )


def _value(cell: str, kind: str) -> str:
    if kind == "JSON":
        return f"PARSE_JSON({cell}, wide_number_mode=>'round')"
    return f"CAST({cell} AS BIGNUMERIC)" if kind.startswith("BIGNUMERIC") else cell


def _digest(name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
