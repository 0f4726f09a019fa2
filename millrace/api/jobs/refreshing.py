"""When a tenant's rules change, its tables take them over, by one op each. What a crash left undone is done at the start."""

from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import Connection, select

from millrace.api.documents.tables import tables_of
from millrace.declare.rules_fit import applicable
from millrace.model.columns import parse_columns
from millrace.model.ops import Applied, Op
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import TenantDefined
from millrace.model.rules import parse_rules
from millrace.store import tables as t
from millrace.store.engine import ControlStore


class Refreshing:
    def __init__(self, store: ControlStore, append: Callable[[Op[Any]], Any]) -> None:
        self._store = store
        self._append = append

    def on_applied(self, applied: list[Applied]) -> None:
        """Called from the controller's thread."""
        results = [one.result for one in applied if isinstance(one.result, TenantDefined)]
        changed = [result.tenant for result in results if result.rules_changed]
        if changed:
            self.refresh(changed)

    def catch_up(self) -> None:
        """Looks at the tenants whose agreement or tables have rules. Most have none."""
        agreeing = self._store.rows(select(t.tenants.c.name, t.tenants.c.agreement))
        bound = self._store.rows(select(t.tables.c.tenant).where(t.tables.c.definition.contains('"agreed":')))
        found = {row.name for row in agreeing if row.agreement.get("rules")}
        self.refresh(sorted(found | {row.tenant for row in bound}))

    def refresh(self, tenants: Iterable[str]) -> None:
        with self._store.read() as connection:
            late = [name for tenant in tenants for name in late_tables(connection, tenant)]
        for tenant, table in late:
            self._append(DefineTable(tenant, table, refresh=True))


def late_tables(connection: Connection, tenant: str) -> list[tuple[str, str]]:
    """Those that are still judged by the rules of an earlier agreement."""
    agreement = connection.execute(select(t.tenants.c.agreement).where(t.tenants.c.name == tenant)).scalar() or {}
    rules = parse_rules(agreement.get("rules") or [])
    tables = [(one.table, one.agreed) for one in tables_of(connection, tenant)]
    return [
        (tenant, table.name)
        for table, agreed in tables
        if agreed != applicable(rules, parse_columns(table.schema), table.primary_key)
    ]
