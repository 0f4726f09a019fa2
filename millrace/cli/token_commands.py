"""millrace token …: each command's name, arguments and help."""

from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.lazy import LazyModule
from millrace.model.roles import ROLES

if TYPE_CHECKING:
    from millrace.cli import tokens
else:
    tokens = LazyModule("millrace.cli.tokens")

EVERYWHERE = "With every command: --home FOLDER, --json (for programs), --debug (tracebacks)."
Name = Annotated[str, typer.Argument(show_default=False)]
app = typer.Typer(
    help="Make, list and revoke access tokens.", no_args_is_help=True, epilog=EVERYWHERE, rich_markup_mode=None
)


@app.command("create", epilog=EVERYWHERE)
def token_create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="To know it by.", show_default=False)],
    tenant: Annotated[
        str | None, typer.Option(help="What it may see. Default: everything.", show_default=False)
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(ROLES)}. Default: all that is possible there.", show_default=False),
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option(help="Limits it to this table; may be repeated.", show_default=False)
    ] = None,
    days: Annotated[
        float | None, typer.Option(help="After so many days it expires. Default: never.", min=0, show_default=False)
    ] = None,
) -> None:
    """Make a token; it is shown this once."""
    tokens.create(context.obj, name, tenant, role, table, days)


@app.command("list", epilog=EVERYWHERE)
def token_list(
    context: typer.Context,
    tenant: Annotated[str | None, typer.Option(help="Only those of this tenant.", show_default=False)] = None,
) -> None:
    """List tokens with their role, expiry and last use."""
    tokens.show(context.obj, tenant)


@app.command("delete", epilog=EVERYWHERE)
@app.command("revoke", epilog=EVERYWHERE, hidden=True)
def token_delete(
    context: typer.Context,
    name: Name,
    tenant: Annotated[
        str | None, typer.Option(help="Whose, if several tenants have one of that name.", show_default=False)
    ] = None,
) -> None:
    """Revoke a token."""
    tokens.delete(context.obj, name, tenant)
