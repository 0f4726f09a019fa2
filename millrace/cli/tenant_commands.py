"""millrace tenant …, export and schema: each command's name, arguments and help."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli import key_commands
from millrace.cli.lazy import LazyModule

if TYPE_CHECKING:
    from millrace.cli import tenants
else:
    tenants = LazyModule("millrace.cli.tenants")

EVERYWHERE = "With every command: --home FOLDER, --json (for programs), --debug (tracebacks)."
Tenant = Annotated[str, typer.Argument(metavar="TENANT", show_default=False)]
app = typer.Typer(
    help="List tenants, delete them, bring them back.", no_args_is_help=True, epilog=EVERYWHERE, rich_markup_mode=None
)


def register(main: typer.Typer) -> None:
    app.add_typer(key_commands.app, name="key")
    main.add_typer(app, name="tenant")
    main.command("export", epilog=EVERYWHERE)(export)
    main.command("schema", epilog=EVERYWHERE)(schema)


@app.command("list", epilog=EVERYWHERE)
def tenant_list(context: typer.Context) -> None:
    """List tenants with the revision of their agreement."""
    tenants.show(context.obj)


@app.command("delete", epilog=EVERYWHERE)
def tenant_delete(
    context: typer.Context,
    tenant: Tenant,
    confirm: Annotated[
        str | None, typer.Option(help="The tenant's name again; else it is asked for.", show_default=False)
    ] = None,
    grace_days: Annotated[int, typer.Option(help="So long it can be restored.", min=0, max=365)] = 7,
) -> None:
    """Delete a tenant: it takes nothing new, and can be restored until its grace is over."""
    raise typer.Exit(tenants.delete(context.obj, tenant, confirm, grace_days))


@app.command("restore", epilog=EVERYWHERE)
def tenant_restore(context: typer.Context, tenant: Tenant) -> None:
    """Bring a deleted tenant back."""
    tenants.restore(context.obj, tenant)


@app.command("erase", epilog=EVERYWHERE)
def tenant_erase(
    context: typer.Context,
    tenant: Tenant,
    confirm: Annotated[
        str | None, typer.Option(help="The tenant's name again; else it is asked for.", show_default=False)
    ] = None,
    now: Annotated[bool, typer.Option("--now", help="Although it could still be restored.")] = False,
    wait: Annotated[float, typer.Option(help="Seconds after which a sink that is away is given up.", min=0)] = 30.0,
) -> None:
    """Remove a deleted tenant everywhere, for good; prints a receipt."""
    raise typer.Exit(tenants.erase(context.obj, tenant, confirm, now, wait))


def export(
    context: typer.Context,
    tenant: Tenant,
    out: Annotated[
        Path | None, typer.Option(help="A folder for one file per document; else all to standard output.")
    ] = None,
) -> None:
    """Write what runs as documents that can be applied again without changing anything."""
    tenants.export(context.obj, tenant, out)


def schema(
    name: Annotated[str, typer.Argument(metavar="table|agreement", help="Of which document.", show_default=False)],
) -> None:
    """Print the JSON Schema of a document, for editors."""
    tenants.schema(name)
