"""The tenants, tables and imports that a batch of ops has read and changed: each is read once and written once.

It lives as long as the transaction. Nobody else writes these rows while the controller has the store's write lock."""

from collections.abc import Iterable
from dataclasses import asdict, fields
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, select, update

from millrace.control.state import Table, Tenant
from millrace.model.imports import (
    ADMITTED,
    AMEND,
    DELETE,
    HELD,
    LOAD,
    PROCESSING,
    PUBLISHING,
    REPLAY,
    STOPPING,
    TERMINAL,
    Import,
)
from millrace.model.table import Definition
from millrace.model.usage import summed, used_by
from millrace.store import tables as t
from millrace.store.engine import upsert
from millrace.store.erasing import erase_rows
from millrace.store.records import find_by_key, find_import, find_imports, find_open_imports, import_row
from millrace.store.usage import add_usage

_TENANT = (
    select(t.tenants, t.departures.c.deleted_us, t.departures.c.erase_us)
    .outerjoin(t.departures, t.departures.c.tenant == t.tenants.c.name)
    .where(t.tenants.c.name == bindparam("tenant_name"))
)
_TABLE = select(t.tables).where(t.tables.c.tenant == bindparam("of_tenant"), t.tables.c.name == bindparam("table_name"))
_COUNT_OPEN = (
    select(func.count())
    .select_from(t.imports)
    .where(
        t.imports.c.state.in_((ADMITTED, PROCESSING, PUBLISHING, STOPPING, HELD)),
        t.imports.c.kind.in_((LOAD, DELETE, AMEND, REPLAY)),
        t.imports.c.tenant == bindparam("of_tenant"),
        t.imports.c.id != bindparam("but"),
    )
)
_COUNT_UNSETTLED = (
    select(func.count())
    .select_from(t.imports)
    .where(t.imports.c.state.not_in(TERMINAL), t.imports.c.tenant == bindparam("of_tenant"))
)
MOST_DEFINITIONS = 4096
_TENANT_FIELDS = tuple(one.name for one in fields(Tenant))
_COUNTERS = ("last_version", "floor", "open_imports", "dropped_us", "is_purged")
_CHANGE_TABLE = (
    update(t.tables)
    .where(t.tables.c.tenant == bindparam("of_tenant"), t.tables.c.name == bindparam("table_name"))
    .values({name: bindparam(f"new_{name}") for name in _COUNTERS})
)


class WorkingSet:
    def __init__(self, connection: Connection, expected_imports: Iterable[str] = ()) -> None:
        self.connection = connection
        self._tenants: dict[str, Tenant | None] = {}
        self._tables: dict[tuple[str, str], Table | None] = {}
        self._stored_tables: dict[tuple[str, str], Table | None] = {}
        self._imports: dict[str, Import | None] = dict.fromkeys(expected_imports)
        self._imports |= {imp.id: imp for imp in find_imports(connection, list(self._imports))}
        self._changed_imports: dict[str, int] = {}
        self._used: list[dict[str, Any]] = []

    def tenant(self, name: str) -> Tenant | None:
        if name not in self._tenants:
            row = self.connection.execute(_TENANT, {"tenant_name": name}).first()
            self._tenants[name] = None if row is None else Tenant(*(getattr(row, field) for field in _TENANT_FIELDS))
        return self._tenants[name]

    def table(self, tenant: str, name: str) -> Table | None:
        key = tenant, name
        if key not in self._tables:
            self._tables[key] = self._stored_tables[key] = _find_table(self.connection, tenant, name)
        return self._tables[key]

    def import_(self, import_id: str) -> Import | None:
        if import_id not in self._imports:
            self._imports[import_id] = find_import(self.connection, import_id)
        return self._imports[import_id]

    def import_by_key(self, tenant: str, key: str) -> Import | None:
        changed = (self._imports[import_id] for import_id in self._changed_imports)
        ours = (imp for imp in changed if imp is not None and (imp.tenant, imp.idempotency_key) == (tenant, key))
        return next(ours, None) or find_by_key(self.connection, tenant, key)

    def open_imports(self, tenant: str, table: str) -> list[Import]:
        self._write_imports()
        return find_open_imports(self.connection, tenant, table)

    def count_open_imports(self, tenant: str, but: str | None) -> int:
        """Uploads and replays that have not ended; not appends, which end by themselves in a moment."""
        self._write_imports()
        return int(self.connection.execute(_COUNT_OPEN, {"of_tenant": tenant, "but": but or ""}).scalar_one())

    def count_unsettled(self, tenant: str) -> int:
        """All imports that have not ended, of every kind."""
        self._write_imports()
        return int(self.connection.execute(_COUNT_UNSETTLED, {"of_tenant": tenant}).scalar_one())

    def erase(self, tenant: str) -> None:
        """Later ops of the batch then find what they would find in the store."""
        self.write()
        erase_rows(self.connection, tenant)
        self._tenants[tenant] = None
        self._tables = {key: table for key, table in self._tables.items() if key[0] != tenant}
        self._imports = {name: imp for name, imp in self._imports.items() if imp is None or imp.tenant != tenant}

    def meter(self, imp: Import, ended_us: int) -> None:
        """Counts what an import that has just ended used."""
        used = used_by(imp, ended_us)
        if used is not None:
            self._used.append(used)

    def put_tenant(self, tenant: Tenant) -> None:
        self._tenants[tenant.name] = tenant
        row = asdict(tenant)
        departure = {"tenant": tenant.name, "deleted_us": row.pop("deleted_us"), "erase_us": row.pop("erase_us")}
        upsert(self.connection, t.tenants, {**row, "folded_name": tenant.name.lower()})
        if tenant.deleted_us is None:
            self.connection.execute(delete(t.departures).where(t.departures.c.tenant == tenant.name))
        else:
            upsert(self.connection, t.departures, departure)

    def put_table(self, table: Table) -> None:
        self._tables[table.tenant, table.name] = table

    def put_import(self, imp: Import, at_us: int) -> None:
        self._imports[imp.id] = imp
        self._changed_imports[imp.id] = at_us

    def write(self) -> None:
        for key, table in self._tables.items():
            if table is not None and table is not self._stored_tables[key]:
                _save_table(self.connection, self._stored_tables[key], table)
                self._stored_tables[key] = table
        self._write_imports()
        add_usage(self.connection, summed(self._used))
        self._used.clear()

    def _write_imports(self) -> None:
        changed = [(self._imports[import_id], at_us) for import_id, at_us in self._changed_imports.items()]
        rows = [import_row(imp, at_us) for imp, at_us in changed if imp is not None]
        if rows:
            upsert(self.connection, t.imports, rows)
        self._changed_imports.clear()


def _find_table(connection: Connection, tenant: str, name: str) -> Table | None:
    row = connection.execute(_TABLE, {"of_tenant": tenant, "table_name": name}).first()
    if row is None:
        return None
    counters = {name: getattr(row, name) for name in ("defined_us", *_COUNTERS)}
    return Table(row.tenant, row.name, _definition(row.definition), **counters)


# Each op of a table needs it, and it seldom changes.
@lru_cache(maxsize=MOST_DEFINITIONS)
def _definition(text: str) -> Definition:
    return Definition.from_json(text.encode())


def _save_table(connection: Connection, before: Table | None, table: Table) -> None:
    if before is None or before.definition is not table.definition:
        definition = table.definition.to_json().decode()
        row = {"tenant": table.tenant, "name": table.name, "folded_name": table.name.lower(), "definition": definition}
        counters = {name: getattr(table, name) for name in ("defined_us", *_COUNTERS)}
        upsert(connection, t.tables, {**row, **counters})
        return
    changed = {"of_tenant": table.tenant, "table_name": table.name}
    connection.execute(_CHANGE_TABLE, {**changed, **{f"new_{name}": getattr(table, name) for name in _COUNTERS}})
