"""The agreement of a tenant as the control store holds it."""

from sqlalchemy import Connection, select

from millrace.model.agreement import Agreement, parse_agreement
from millrace.model.errors import Missing, Refused
from millrace.store import tables as t


def agreement_of(connection: Connection, tenant: str) -> Agreement | None:
    """As it is in force; one from before a word was known counts by what can still be read."""
    row = connection.execute(select(t.tenants.c.agreement).where(t.tenants.c.name == tenant)).first()
    if row is None:
        return None
    try:
        return parse_agreement({"client": tenant, **row.agreement})[0]
    except Refused:
        return Agreement(tenant)


def known_agreement(connection: Connection, tenant: str) -> Agreement:
    agreement = agreement_of(connection, tenant)
    if agreement is None:
        raise Missing(f"There is no tenant {tenant!r}.", code="no_tenant")
    return agreement
