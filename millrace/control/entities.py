"""What one op can see, read from and written to the control store."""

from sqlalchemy import Connection, bindparam, delete, select, update

from millrace.control.step import State, Table, Tenant
from millrace.model import ops
from millrace.model.errors import Clash
from millrace.model.ops import Op
from millrace.model.table import Definition
from millrace.store import tables as t
from millrace.store.engine import upsert
from millrace.store.records import find_by_key, find_import, import_row

_ABOUT_TABLES = (ops.DEFINE_TABLE, ops.BEGIN_IMPORT)
_ABOUT_IMPORTS = (ops.END_IMPORT, ops.CANCEL_IMPORT, ops.EXPIRE_IMPORT, ops.FAIL_IMPORT, ops.SETTLE_IMPORT)


def load(connection: Connection, op: Op) -> State:
    tenant = None if op.kind in _ABOUT_IMPORTS else _find_tenant(connection, op.tenant)
    table = _find_table(connection, op.tenant, op.subject) if op.kind in _ABOUT_TABLES else None
    imp = find_import(connection, op.subject) if op.kind in _ABOUT_IMPORTS else None
    key = op.body.get("idempotency_key") if op.kind == ops.BEGIN_IMPORT else None
    return State(tenant, table, imp, find_by_key(connection, op.tenant, key) if key else None)


def save(connection: Connection, before: State, after: State, at_us: int) -> None:
    if after.tenant is not None and after.tenant is not before.tenant:
        _save_tenant(connection, after.tenant)
    if after.table is not None and after.table is not before.table:
        _save_table(connection, before.table, after.table)
    if after.imp is not None and after.imp is not before.imp:
        upsert(connection, t.imports, import_row(after.imp, at_us))


def forget_facts(connection: Connection, import_ids: list[str]) -> None:
    """What was only needed until these imports were over."""
    for facts in (t.chunks, t.durable_chunks, t.uploads):
        connection.execute(delete(facts).where(facts.c.import_id.in_(import_ids)))


_TENANT = select(t.tenants).where(t.tenants.c.name == bindparam("tenant_name"))
_TABLE = select(t.tables).where(t.tables.c.tenant == bindparam("of_tenant"), t.tables.c.name == bindparam("table_name"))
_RESERVE = (
    update(t.tables)
    .where(t.tables.c.tenant == bindparam("of_tenant"), t.tables.c.name == bindparam("table_name"))
    .values(last_version=bindparam("reserved"))
)


def _find_tenant(connection: Connection, name: str) -> Tenant | None:
    row = connection.execute(_TENANT, {"tenant_name": name}).first()
    return None if row is None else Tenant(row.name, row.partition, row.agreement, row.revision)


def _find_table(connection: Connection, tenant: str, name: str) -> Table | None:
    row = connection.execute(_TABLE, {"of_tenant": tenant, "table_name": name}).first()
    if row is None:
        return None
    return Table(row.tenant, row.name, Definition.from_json(row.definition.encode()), row.last_version, row.defined_us)


def _save_tenant(connection: Connection, tenant: Tenant) -> None:
    folded = tenant.name.lower()
    other = connection.execute(select(t.tenants.c.name).where(t.tenants.c.folded_name == folded)).scalar()
    if other not in (None, tenant.name):
        raise Clash(f"There is a tenant {other!r} already.", remedy="Names that differ only in case are refused.")
    upsert(
        connection,
        t.tenants,
        {
            "name": tenant.name,
            "folded_name": folded,
            "partition": tenant.partition,
            "agreement": tenant.agreement,
            "revision": tenant.revision,
        },
    )


def _save_table(connection: Connection, before: Table | None, table: Table) -> None:
    if before is not None and before.definition is table.definition:
        reserved = {"of_tenant": table.tenant, "table_name": table.name, "reserved": table.last_version}
        connection.execute(_RESERVE, reserved)
        return
    names = connection.execute(
        select(t.tables.c.name).where(t.tables.c.tenant == table.tenant, t.tables.c.folded_name == table.name.lower())
    )
    other = names.scalar()
    if other not in (None, table.name):
        raise Clash(
            f"There is a table {table.tenant}/{other} already.", remedy="Names that differ only in case are refused."
        )
    upsert(
        connection,
        t.tables,
        {
            "tenant": table.tenant,
            "name": table.name,
            "folded_name": table.name.lower(),
            "definition": table.definition.to_json().decode(),
            "last_version": table.last_version,
            "defined_us": table.defined_us,
        },
    )
