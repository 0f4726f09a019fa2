"""A table's definition for MySQL and MariaDB: names, types, and the statements that create, change and fill it.

Every session is in the modes of `SESSION`: names in double quotes, no backslash escapes, nothing cut to fit."""

import hashlib
from collections.abc import Iterable, Sequence

import pyarrow as pa

from millrace.arrow.types import arrow_type
from millrace.model.changes import AddColumn, Change, DropColumn, RenameColumn, WidenColumn
from millrace.model.columns import Column
from millrace.model.defaults import stored_default
from millrace.model.table import Definition
from millrace.sink.jdbc.text import plain

SESSION = (
    "SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    "SET SESSION time_zone = '+00:00'",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)
MOST_NAME = 64
MOST_KEY_BYTES, FIXED_KEY_BYTES, BYTES_PER_CHARACTER = 3072, 20, 4
META, CHUNKS, STAGING = "_millrace_tables", "_millrace_chunks", "_millrace_staging"
NOT_FINITE = "_not_finite"
OWN = {"_version": "BIGINT NOT NULL", "_import": "VARCHAR(64)", "_row": "BIGINT", NOT_FINITE: "LONGTEXT"}
LOCK_SECONDS = 60

_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    # FLOAT is printed with six digits. A DOUBLE returns what it was given.
    pa.float32(): "DOUBLE",
    pa.float64(): "DOUBLE",
    pa.string(): "LONGTEXT",
    pa.binary(): "LONGBLOB",
    pa.date32(): "DATE",
}


def physical(name: str) -> str:
    """The name as the server can keep it. A name that is too long, ends in a space or has other characters gets a digest."""
    if len(name) <= MOST_NAME and not name.endswith(" ") and all(letter <= "\uffff" for letter in name):
        return name
    kept = "".join(letter for letter in name if letter <= "\uffff").rstrip()
    return f"{kept[: MOST_NAME - 13]}_{hashlib.blake2b(name.encode(), digest_size=6).hexdigest()}"


def quoted(name: str) -> str:
    return '"' + physical(name).replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def database(base: str, tenant: str) -> str:
    """The tenant's own database: a tenant's name has no dollar sign, so no other tenant can have it."""
    return physical(f"{base}${tenant}")


def collation(version: str) -> str:
    """Texts are equal only if every character is equal, trailing spaces included."""
    return f"CHARACTER SET utf8mb4 COLLATE {'utf8mb4_nopad_bin' if 'MariaDB' in version else 'utf8mb4_0900_bin'}"


def tombstones(table: str) -> str:
    return physical(f"{table}__deleted")


class TablePlace:
    """Where a definition's rows are: the tenant's database, the table, and the tombstones beside it."""

    def __init__(self, base: str, definition: Definition) -> None:
        self.database = database(base, definition.tenant)
        self.name = physical(definition.table.name)
        self.rows = self.of(self.name)
        self.graves = self.of(tombstones(definition.table.name))
        self.meta, self.chunks, self.staging = self.of(META), self.of(CHUNKS), self.of(STAGING)

    def of(self, table: str) -> str:
        return f"{quoted(self.database)}.{quoted(table)}"


def type_of(column: Column, definition: Definition) -> str:
    kind, key = arrow_type(column), definition.table.primary_key
    if column.name in key and (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        width = _key_width(definition)
        return f"VARCHAR({width // BYTES_PER_CHARACTER})" if pa.types.is_string(kind) else f"VARBINARY({width})"
    if kind in _TYPES:
        return _TYPES[kind]
    if pa.types.is_timestamp(kind):
        return "DATETIME(6)"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return "JSON" if pa.types.is_nested(kind) else "LONGTEXT"


def _key_width(definition: Definition) -> int:
    """How many bytes each text or bytes column of the key may have. Together they must fit into an index."""
    kinds = [arrow_type(column) for column in definition.columns if column.name in definition.table.primary_key]
    wide = len([kind for kind in kinds if pa.types.is_string(kind) or pa.types.is_binary(kind)])
    return (MOST_KEY_BYTES - FIXED_KEY_BYTES * (len(kinds) - wide)) // wide


def stored_columns(definition: Definition) -> dict[str, str]:
    """Name and type of every column of the table, in order."""
    return {column.name: type_of(column, definition) for column in definition.columns} | OWN


def key_columns(definition: Definition) -> dict[str, str]:
    stored = stored_columns(definition)
    return {name: stored[name] for name in definition.table.primary_key} | {"_version": OWN["_version"]}


def create_table(place: str, columns: dict[str, str], key: Sequence[str], comment: str) -> str:
    described = [f"{quoted(name)} {kind}{' NOT NULL' if name in key else ''}" for name, kind in columns.items()]
    if key:
        described.append(f"PRIMARY KEY ({listed(key)})")
    return f"CREATE TABLE {place} ({', '.join(described)}) COMMENT = {literal(comment)}"


def create_staging(place: TablePlace, columns: dict[str, str]) -> str:
    described = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())
    return f"CREATE TEMPORARY TABLE {place.staging} ({described})"


def alteration(change: Change, definition: Definition, columns: Iterable[str]) -> str | None:
    """The change as part of an ALTER TABLE, if it concerns one of the columns. Existing rows get the default of an added
    column."""
    match change:
        case AddColumn(column) if column.name in columns:
            return f"ADD COLUMN {quoted(column.name)} {type_of(column, definition)}{_default(column)}"
        case DropColumn(name) if "_row" in columns:
            return f"DROP COLUMN {quoted(name)}"
        case RenameColumn(old, new) if new in columns:
            return f"RENAME COLUMN {quoted(old)} TO {quoted(new)}"
        case WidenColumn(name, before, after) if name in columns:
            kinds = type_of(before, definition), type_of(after, definition)
            not_null = " NOT NULL" if name in definition.table.primary_key else ""
            return None if kinds[0] == kinds[1] else f"MODIFY COLUMN {quoted(name)} {kinds[1]}{not_null}"
    return None


def _default(column: Column) -> str:
    value = stored_default(column)
    if value is None:
        return ""
    text = plain(pa.array([value], arrow_type(column)))[0].as_py()
    if text is None:
        return ""
    if pa.types.is_binary(arrow_type(column)):
        return f" DEFAULT (x'{text}')"
    return f" DEFAULT ({literal(text) if isinstance(text, str) else text})"


def load(table: str, columns: Sequence[tuple[str, pa.DataType]]) -> str:
    """Bytes travel as hexadecimal digits."""
    names = [f"@{at}" if pa.types.is_binary(kind) else quoted(name) for at, (name, kind) in enumerate(columns)]
    coded = [f"{quoted(name)} = UNHEX(@{at})" for at, (name, kind) in enumerate(columns) if pa.types.is_binary(kind)]
    return (
        f"LOAD DATA LOCAL INFILE 'rows' INTO TABLE {table} CHARACTER SET utf8mb4 "
        "FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"' ESCAPED BY '' LINES TERMINATED BY x'0a' "
        f"({', '.join(names)})" + (f" SET {', '.join(coded)}" if coded else "")
    )


def upsert(place: TablePlace, definition: Definition) -> str:
    names, key = list(stored_columns(definition)), definition.table.primary_key
    is_newer = f'new."_version" > {place.rows}."_version"'
    # Assignments run from left to right. The version comes last, because the others compare it.
    changed = [name for name in names if name not in key and name != "_version"] + ["_version"]
    given = [f"{quoted(name)} = IF({is_newer}, new.{quoted(name)}, {place.rows}.{quoted(name)})" for name in changed]
    return (
        f"INSERT INTO {place.rows} ({listed(names)}) SELECT {listed(names)} FROM {place.staging} AS new "
        f"WHERE NOT EXISTS (SELECT 1 FROM {place.graves} AS gone WHERE {_same(key, 'gone', 'new')} "
        f'AND gone."_version" >= new."_version") ON DUPLICATE KEY UPDATE {", ".join(given)}'
    )


def delete(place: TablePlace, key: Sequence[str]) -> tuple[str, str]:
    names = listed([*key, "_version"])
    return (
        f"DELETE there FROM {place.rows} AS there JOIN {place.staging} AS gone ON {_same(key, 'there', 'gone')} "
        'WHERE there."_version" <= gone."_version"',
        f"INSERT INTO {place.graves} ({names}) SELECT {names} FROM {place.staging} AS new ON DUPLICATE KEY UPDATE "
        f'"_version" = GREATEST({place.graves}."_version", new."_version")',
    )


def listed(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))


def _same(key: Sequence[str], left: str, right: str) -> str:
    return " AND ".join(f"{left}.{quoted(name)} = {right}.{quoted(name)}" for name in key)
