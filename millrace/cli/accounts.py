"""The commands about what happened: events, audit, usage."""

from datetime import datetime
from typing import Annotated, Any

import typer

from millrace.cli.arguments import moment, of_tenant
from millrace.cli.printing import answer, answer_all, print_json, print_table, printable
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
    answer_all(session, AUDIT_COLUMNS, found, _audit_row, ("request", "from", "role"))


def _audit_row(entry: dict[str, Any]) -> list[object]:
    return [entry[name] or "" for name in AUDIT_COLUMNS]


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
    print(f"quotas: {agreed}")
    print(
        f"{lag['open_imports']} open imports; held back by quotas for {lag['over_quota_seconds']:g} s, "
        f"waiting for the platform for {lag['platform_late_seconds']:g} s"
    )


@app.command("events")
def events(
    session: CommandSession,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as they happen.")] = False,
    since: Annotated[
        datetime | None,
        typer.Option(parser=moment, metavar="TIME", help="Since 10m, 2h or 3d ago, or a time: 2026-11-16T08:00."),
    ] = None,
    after: Annotated[int | None, typer.Option(help="Only events after this number; 0: all.", min=0)] = None,
    limit: Annotated[int, typer.Option(help="How many, without --follow.", min=1)] = 100,
) -> None:
    """Show what happened, as CloudEvents.

    With --follow from now on, unless --since or --after is given."""
    if not follow:
        newest = since is None and not after
        for event in session.platform.events.page(after=after or 0, limit=limit, newest=newest, since=since)["items"]:
            _show_event(session, event)
        return
    try:
        for _, event in session.platform.events.follow(after=after, since=since):
            _show_event(session, event)
    except KeyboardInterrupt:
        return


def _show_event(session: CommandSession, event: dict[str, Any]) -> None:
    data = event.get("data") or {}
    facts = " ".join(f"{name}={shown}" for name, value in data.items() if (shown := _fact(value)) is not None)
    line = f"{event.get('time', '')}  {event.get('type', '')}  {event.get('subject', '')}  {facts}"
    answer(session, event, printable(line))


def _fact(value: object) -> str | None:
    """None: nothing to show in a line."""
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return "; ".join(value)
    if isinstance(value, dict) and "text" in value:
        return str(value["text"])
    return None if value is None or isinstance(value, dict | list) else str(value)
