"""millrace token …: each command's name, arguments and help."""

from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.lazy import LazyModule

if TYPE_CHECKING:
    from millrace.cli import tokens
else:
    tokens = LazyModule("millrace.cli.tokens")

EVERYWHERE = "With every command: --home FOLDER, --json (for programs), --debug (tracebacks)."
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
) -> None:
    """Make a token; it is shown this once."""
    tokens.create(context.obj, name, tenant)


@app.command("list", epilog=EVERYWHERE)
def token_list(context: typer.Context) -> None:
    """List tokens by name."""
    tokens.show(context.obj)


@app.command("delete", epilog=EVERYWHERE)
def token_delete(context: typer.Context, name: Annotated[str, typer.Argument(show_default=False)]) -> None:
    """Revoke a token."""
    tokens.delete(context.obj, name)
