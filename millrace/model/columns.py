"""Columns of a table: an Avro record schema in, typed columns out. Refuses types that no sink can store."""

from dataclasses import dataclass
from typing import Any

from millrace.model.errors import Invalid
from millrace.model.stored_types import LOGICAL, STRING, Avro, StoredType, checked_field, stored_type, without_null
from millrace.model.written import AS_USUAL, Writing

MAX_COLUMNS = 2000
DELETED_COLUMN = "_deleted"
RESCUED_COLUMN = "_rescued"
# In a file of corrected rows: the number of the rejected row that a row replaces. It is not stored.
ROW_COLUMN = "_row"
# Delta gives these to every row of a change feed.
COLUMNS_OF_FEED = ("_change_type", "_commit_version", "_commit_timestamp")
RESERVED = ("_version", "_import", ROW_COLUMN, DELETED_COLUMN, RESCUED_COLUMN)


@dataclass(frozen=True, slots=True)
class Column:
    """One declared column. `avro` is its type without the null branch; `stored` is its type in sinks. `header` is the title
    that it has in files, if that is not its name; `written` says how its cells are written."""

    name: str
    avro: Avro
    nullable: bool
    stored: StoredType
    default: Any = None
    aliases: tuple[str, ...] = ()
    header: str | None = None
    written: Writing = AS_USUAL

    @property
    def kind(self) -> str:
        """The Avro type's name: 'int', 'string', 'record', 'array' …"""
        return self.avro if isinstance(self.avro, str) else str(self.avro["type"])

    @property
    def logical(self) -> str | None:
        return logical_type(self.avro)


def logical_type(avro: Avro) -> str | None:
    """The logical type, if Avro defines it for this kind."""
    if isinstance(avro, str):
        return None
    kind, logical = str(avro["type"]), avro.get("logicalType")
    known = (kind, logical) in LOGICAL or (logical == "decimal" and kind in ("bytes", "fixed"))
    return logical if known or (logical == "uuid" and kind == "string") else None


def column_of(name: str, avro: Avro, nullable: bool = False) -> Column:
    """A column of an Avro type without its null branch."""
    return Column(name, avro, nullable, stored_type(avro, name))


def parse_columns(schema: object) -> tuple[Column, ...]:
    if not isinstance(schema, dict) or schema.get("type") != "record" or not isinstance(schema.get("fields"), list):
        raise Invalid("The schema is not an Avro record.", remedy='Write {"type": "record", "name": …, "fields": […]}.')
    fields = schema["fields"]
    if not 1 <= len(fields) <= MAX_COLUMNS:
        raise Invalid(f"The schema has {len(fields)} fields.", remedy=f"Declare 1 to {MAX_COLUMNS}.")
    columns = tuple(_column(field) for field in fields)
    refuse_repeated([column.name for column in columns])
    return columns


def refuse_repeated(names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise Invalid(
                f"Column {name!r} is declared twice; names that differ only in case are the same.", remedy="Rename one."
            )
        if name.lower() in RESERVED:
            raise Invalid(f"Column {name!r} is reserved for Millrace.", remedy="Choose another name.")
        seen.add(name.lower())


def _column(field: object) -> Column:
    field = checked_field(field, "the schema")
    name = field["name"]
    avro, nullable = without_null(field["type"], name)
    if isinstance(avro, str) and "logicalType" in field:
        # The seeds write logicalType beside the type instead of inside it. Both mean the same.
        avro = {"type": avro, **{key: field[key] for key in ("logicalType", "precision", "scale") if key in field}}
    return Column(name, avro, nullable, stored_type(avro, name), field.get("default"), tuple(field.get("aliases", ())))


RESCUED = Column(RESCUED_COLUMN, "string", True, StoredType(STRING))
