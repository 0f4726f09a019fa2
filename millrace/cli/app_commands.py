"""millrace app …: each command's name, arguments and help."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.lazy import LazyModule

if TYPE_CHECKING:
    from millrace.cli import app_trial, apps
else:
    apps, app_trial = LazyModule("millrace.cli.apps"), LazyModule("millrace.cli.app_trial")

EVERYWHERE = "With every command: --home FOLDER, --json (for programs), --debug (tracebacks)."
app = typer.Typer(
    help="Client apps: the tenants' programs.", no_args_is_help=True, epilog=EVERYWHERE, rich_markup_mode=None
)
Tenant = Annotated[str, typer.Argument(metavar="TENANT", show_default=False)]
Run = Annotated[str | None, typer.Argument(metavar="[RUN]", help="Default: the latest.", show_default=False)]


@app.command("list", epilog=EVERYWHERE)
def list_command(context: typer.Context) -> None:
    """List the client apps, how they do and how apart they run."""
    apps.show_all(context.obj)


@app.command("run", epilog=EVERYWHERE)
def run_command(
    context: typer.Context,
    tenant: Tenant,
    wait: Annotated[bool, typer.Option("--wait", help="Until its files are imported; exit 1 if any failed.")] = False,
) -> None:
    """Run a batch app now, beside its schedule."""
    raise typer.Exit(apps.run(context.obj, tenant, wait))


@app.command("runs", epilog=EVERYWHERE)
def runs_command(
    context: typer.Context, tenant: Tenant, limit: Annotated[int, typer.Option(help="How many.", min=1, max=200)] = 20
) -> None:
    """List the latest runs."""
    apps.runs(context.obj, tenant, limit)


@app.command("files", epilog=EVERYWHERE)
def files_command(context: typer.Context, tenant: Tenant, run: Run = None) -> None:
    """Show what became of the files of a run."""
    apps.files(context.obj, tenant, run)


@app.command("logs", epilog=EVERYWHERE)
def logs_command(
    context: typer.Context,
    tenant: Tenant,
    run: Run = None,
    name: Annotated[
        str | None,
        typer.Option(help="stdout.log, stderr.log, files/NAME …; default: both of the first.", show_default=False),
    ] = None,
    tail: Annotated[int, typer.Option(help="At most so many of the last bytes of each.", min=1)] = 1 << 20,
) -> None:
    """Show what a run wrote to its output and logs."""
    apps.logs(context.obj, tenant, run, name, tail)


@app.command("test", epilog=EVERYWHERE)
def try_command(
    context: typer.Context,
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="The program and its words.", show_default=False)
    ],
    given: Annotated[
        Path, typer.Option("--in", help="Files for its `in`.", exists=True, file_okay=False, show_default=False)
    ],
    declarations: Annotated[
        list[Path] | None, typer.Option("--tables", help="Declarations of the tenant's tables.", show_default=False)
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="As in the agreement's app.env.", show_default=False)
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="It runs until it is told to stop.")] = False,
    seconds: Annotated[float, typer.Option(help="How long it may take.", min=0.1)] = 60.0,
    out: Annotated[Path | None, typer.Option(help="Keep what it wrote in this folder.", show_default=False)] = None,
) -> None:
    """Try a program: does it keep to the contract?

    Without a platform. It is run twice, and once killed; exit 1 if a check fails."""
    order = app_trial.Order(tuple(command), given, tuple(declarations or ()), tuple(env or ()), stream, seconds, out)
    raise typer.Exit(app_trial.run(context.obj, order))
