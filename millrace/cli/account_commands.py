"""millrace audit and usage: each command's name, arguments and help."""

from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.lazy import LazyModule

if TYPE_CHECKING:
    from millrace.cli import accounts
else:
    accounts = LazyModule("millrace.cli.accounts")

EVERYWHERE = "With every command: --home FOLDER, --json (for programs), --debug (tracebacks)."
OfTenant = Annotated[str | None, typer.Option("--tenant", help="Only of this tenant.", show_default=False)]


def register(main: typer.Typer) -> None:
    main.command("audit", epilog=EVERYWHERE)(audit)
    main.command("usage", epilog=EVERYWHERE)(usage)


def audit(
    context: typer.Context,
    tenant: OfTenant = None,
    limit: Annotated[int, typer.Option(help="How many of the latest.", min=1, max=1000)] = 50,
) -> None:
    """Show who changed what, when and from where."""
    accounts.audit(context.obj, tenant, limit)


def usage(
    context: typer.Context,
    tenant: OfTenant = None,
    days: Annotated[int, typer.Option(help="How many of the latest days.", min=1, max=400)] = 7,
) -> None:
    """Show what a tenant used by day, what was agreed, and why it lags behind if it does."""
    accounts.usage(context.obj, tenant, days)
