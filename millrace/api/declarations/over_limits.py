"""Whether a tenant may declare one more table, and a table with so many sinks."""

from sqlalchemy import Connection, func, select

from millrace.model.limits import REMOVAL_SECONDS, over_limit
from millrace.model.table import TableDeclaration
from millrace.settings import LimitSettings
from millrace.store import tables as t


def refuse_over_limits(
    connection: Connection, tenant: str, declaration: TableDeclaration, limits: LimitSettings
) -> None:
    """A table that is there already may always be changed, except to more sinks. Two requests at once may both pass."""
    sinks = len(declaration.sinks)
    if sinks > limits.sinks:
        raise over_limit(
            tenant, "sinks", "sinks in a table", limits.sinks, used=sinks, remedy="Name fewer sinks.",
            retry_seconds=REMOVAL_SECONDS,
        )  # fmt: skip
    of_tenant = select(func.count()).where(t.tables.c.tenant == tenant, t.tables.c.is_purged.is_(False))
    if connection.execute(of_tenant.where(t.tables.c.name == declaration.name)).scalar_one():
        return
    tables = connection.execute(of_tenant).scalar_one()
    if tables >= limits.tables:
        raise over_limit(
            tenant, "tables", "tables", limits.tables, used=tables, retry_seconds=REMOVAL_SECONDS,
            remedy="Drop some. A dropped table counts until it can no longer be restored.",
        )  # fmt: skip
