"""The commands audit and usage."""

from typing import Annotated

import typer

from millrace.cli.arguments import of_tenant
from millrace.cli.printing import answer_all, print_json, print_table
from millrace.cli.session import CommandSession

AUDIT_COLUMNS = ("at", "who", "role", "from", "tenant", "action", "subject", "outcome", "request")
USAGE_COLUMNS = {
    "day": "day",
    "accepted": "rows_accepted",
    "rejected": "rows_rejected",
    "bytes": "bytes",
    "imports": "imports",
    "appends": "appends",
    "chunks": "chunks",
    "storage": "storage_bytes",
    "refused": "refused",
}
OnlyTenant = Annotated[str | None, typer.Option("--tenant", help="Only of this tenant.")]
app = typer.Typer()


@app.command("audit")
def audit(
    session: CommandSession,
    tenant: OnlyTenant = None,
    limit: Annotated[int, typer.Option(help="How many of the latest.", min=1, max=1000)] = 50,
) -> None:
    """Show who changed what, when and from where."""
    found = session.platform.audit.list(tenant, limit=limit)
    answer_all(session, AUDIT_COLUMNS, found, lambda entry: [entry[name] or "" for name in AUDIT_COLUMNS])


@app.command("usage")
def usage(
    session: CommandSession,
    tenant: OnlyTenant = None,
    days: Annotated[int, typer.Option(help="How many of the latest days.", min=1, max=400)] = 7,
) -> None:
    """Show what a tenant used by day.

    Also what was agreed, and why it lags behind if it does."""
    found = session.platform.usage.show(of_tenant(session, tenant), days=days)
    if session.json:
        return print_json(found)
    rows = [["" if day[field] is None else day[field] for field in USAGE_COLUMNS.values()] for day in found["days"]]
    print_table(tuple(USAGE_COLUMNS), rows)
    agreed = ", ".join(f"{name} {limit:,}" for name, limit in found["quotas"].items() if limit is not None)
    lag = found["lag"]
    print(f"quotas: {agreed or 'none'}")
    print(
        f"{lag['open_imports']} open imports; held back by quotas for {lag['over_quota_seconds']:g} s, "
        f"waiting for the session.platform for {lag['platform_late_seconds']:g} s"
    )
