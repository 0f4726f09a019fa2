"""Everything the control store knows of a tenant, counted and deleted; of the audit log nothing."""

from sqlalchemy import Connection, delete, func, select
from sqlalchemy.sql.schema import Table

from millrace.store import tables as t

_OF_IMPORTS = (
    t.claims, t.chunks, t.durable_chunks, t.refused_rows, t.uploads, t.chunk_quality, t.closings, t.outbox,
)  # fmt: skip
_OF_TENANTS = (
    t.imports, t.tables, t.revisions, t.waiting, t.spans, t.streams, t.row_digests, t.requests, t.events, t.tokens,
    t.subscriptions, t.usage, t.departures, t.queues, t.parked,
)  # fmt: skip


def erase_rows(connection: Connection, tenant: str) -> None:
    """What hangs on something else goes before it."""
    imports = select(t.imports.c.id).where(t.imports.c.tenant == tenant)
    for facts in _OF_IMPORTS:
        connection.execute(delete(facts).where(facts.c.import_id.in_(imports)))
    of_tokens = select(t.tokens.c.digest).where(t.tokens.c.tenant == tenant)
    for known in (t.grants, t.token_makers):
        connection.execute(delete(known).where(known.c.digest.in_(of_tokens)))
    hooks = select(t.subscriptions.c.id).where(t.subscriptions.c.tenant == tenant)
    connection.execute(delete(t.deliveries).where(t.deliveries.c.subscription.in_(hooks)))
    for owned in _OF_TENANTS:
        connection.execute(delete(owned).where(owned.c.tenant == tenant))
    connection.execute(delete(t.tenants).where(t.tenants.c.name == tenant))


def forget_queues(connection: Connection, tenant: str) -> None:
    """Of deliveries that a batch parked after the tenant was erased."""
    for owned in (t.queues, t.parked):
        connection.execute(delete(owned).where(owned.c.tenant == tenant))


def is_known(connection: Connection, tenant: str) -> bool:
    return connection.execute(select(t.tenants.c.name).where(t.tenants.c.name == tenant)).first() is not None


def fingerprints_of(connection: Connection, tenant: str) -> list[str]:
    """Of every definition that its tables have had."""
    return list(connection.execute(select(t.revisions.c.fingerprint).where(t.revisions.c.tenant == tenant)).scalars())


def rows_of(connection: Connection, tenant: str) -> dict[str, int]:
    """How many there are of each kind."""
    return {owned.name: _count(connection, owned, tenant) for owned in _OF_TENANTS}


def _count(connection: Connection, owned: Table, tenant: str) -> int:
    return int(connection.execute(select(func.count()).select_from(owned).where(owned.c.tenant == tenant)).scalar_one())
