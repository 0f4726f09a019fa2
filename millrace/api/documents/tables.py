"""Tables as callers read them: their definitions, and JSON documents."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select

from millrace.arrow.types import arrow_type
from millrace.model.errors import Missing
from millrace.model.sinks import SinkTarget
from millrace.model.table import Definition
from millrace.sink.context import SinkContext
from millrace.sink.delta.places import location_of
from millrace.store import tables as t

_THERE = t.tables.c.dropped_us.is_(None)


def declared_table(connection: Connection, tenant: str, table: str) -> Definition | None:
    """A dropped table is none: declared again it begins anew."""
    wanted = select(t.tables.c.definition).where(t.tables.c.tenant == tenant, t.tables.c.name == table, _THERE)
    row = connection.execute(wanted).scalar()
    return None if row is None else Definition.from_json(row.encode())


def find_table(connection: Connection, tenant: str, table: str) -> Definition:
    definition = declared_table(connection, tenant, table)
    if definition is None:
        raise Missing(f"There is no table {tenant}/{table}.", remedy="Apply its declaration first.", code="no_table")
    return definition


def targets_of(connection: Connection, tenant: str, table: str) -> tuple[SinkTarget, ...]:
    """The sinks that the table has now."""
    definition = declared_table(connection, tenant, table)
    return () if definition is None else definition.table.targets


def tables_of(connection: Connection, tenant: str | None) -> list[Definition]:
    wanted = select(t.tables.c.definition).where(_THERE).order_by(t.tables.c.tenant, t.tables.c.name)
    rows = connection.execute(wanted if tenant is None else wanted.where(t.tables.c.tenant == tenant)).scalars()
    return [Definition.from_json(row.encode()) for row in rows]


def table_names(connection: Connection, tenants: Sequence[str]) -> dict[str, list[str]]:
    """By tenant."""
    found: dict[str, list[str]] = {}
    wanted = select(t.tables.c.tenant, t.tables.c.name).where(_THERE, t.tables.c.tenant.in_(tenants))
    wanted = wanted.order_by(t.tables.c.name)
    for tenant, name in connection.execute(wanted):
        found.setdefault(tenant, []).append(name)
    return found


def table_document(definition: Definition, context: SinkContext) -> dict[str, Any]:
    table = definition.table
    return {
        "tenant": definition.tenant,
        "table": table.name,
        "revision": definition.revision,
        "generation": definition.generation,
        "definition": definition.fingerprint,
        "location": location_of(context, definition),
        "columns": [{"name": c.name, "type": str(arrow_type(c)), "nullable": c.nullable} for c in definition.columns],
        "primary_key": list(table.primary_key),
        "declaration": table.to_dict(),
    }
