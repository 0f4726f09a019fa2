"""The `audit` and `usage` commands."""

from millrace.cli.printing import print_json, print_table
from millrace.cli.session import Session
from millrace.cli.tenancy import of_tenant
from millrace.client import Millrace


def audit(session: Session, tenant: str | None, limit: int) -> None:
    with Millrace.from_home(session.home) as connection:
        found = connection.audit.list(tenant, limit=limit)
    if session.json:
        for entry in found:
            print_json(entry)
        return
    columns = ("at", "who", "role", "from", "tenant", "action", "subject", "outcome", "request")
    print_table(columns, [tuple(entry[name] or "" for name in columns) for entry in found])


def usage(session: Session, tenant: str | None, days: int) -> None:
    with Millrace.from_home(session.home) as connection:
        found = connection.usage.show(of_tenant(connection, tenant), days=days)
    if session.json:
        print_json(found)
        return
    columns = (
        "day",
        "rows_accepted",
        "rows_rejected",
        "bytes",
        "imports",
        "appends",
        "chunks",
        "storage_bytes",
        "refused",
    )
    names = ("day", "accepted", "rejected", "bytes", "imports", "appends", "chunks", "storage", "refused")
    print_table(names, [tuple("" if day[one] is None else day[one] for one in columns) for day in found["days"]])
    agreed = ", ".join(f"{name} {limit:,}" for name, limit in found["quotas"].items() if limit is not None)
    lag = found["lag"]
    print(f"quotas: {agreed or 'none'}")
    print(
        f"{lag['open_imports']} open imports; held back by quotas for {lag['over_quota_seconds']:g} s, "
        f"waiting for the platform for {lag['platform_late_seconds']:g} s"
    )
