"""millrace tenant key …: each command's name, arguments and help."""

from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.lazy import LazyModule

if TYPE_CHECKING:
    from millrace.cli import keys
else:
    keys = LazyModule("millrace.cli.keys")

EVERYWHERE = "With every command: --home FOLDER, --json (for programs), --debug (tracebacks)."
Tenant = Annotated[str, typer.Argument(metavar="TENANT", show_default=False)]
app = typer.Typer(
    help="Show, rotate or destroy the key that seals a tenant's rows on their way.",
    no_args_is_help=True,
    epilog=EVERYWHERE,
    rich_markup_mode=None,
)


@app.command("show", epilog=EVERYWHERE)
def key_show(context: typer.Context, tenant: Tenant) -> None:
    """Who keeps the tenant's key, and its version."""
    keys.show(context.obj, tenant)


@app.command("rotate", epilog=EVERYWHERE)
def key_rotate(context: typer.Context, tenant: Tenant) -> None:
    """Make a new version and wrap every data key by it; no data is touched."""
    keys.rotate(context.obj, tenant)


@app.command("destroy", epilog=EVERYWHERE)
def key_destroy(
    context: typer.Context,
    tenant: Tenant,
    confirm: Annotated[
        str | None, typer.Option(help="The tenant's name again; else it is asked for.", show_default=False)
    ] = None,
) -> None:
    """Make unreadable, for good, what the key sealed: rejected rows, copies in Kafka, staged files."""
    raise typer.Exit(keys.destroy(context.obj, tenant, confirm))
