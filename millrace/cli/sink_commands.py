"""millrace sink …: each command's name, arguments and help."""

from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.lazy import LazyModule

if TYPE_CHECKING:
    from millrace.cli import sinks
else:
    sinks = LazyModule("millrace.cli.sinks")

EVERYWHERE = "With every command: --home FOLDER, --json (for programs), --debug (tracebacks)."
app = typer.Typer(help="Where a table's rows end up.", no_args_is_help=True, epilog=EVERYWHERE, rich_markup_mode=None)
Target = Annotated[str, typer.Argument(metavar="TENANT/TABLE", show_default=False)]
Sink = Annotated[str, typer.Argument(metavar="SINK", help="Its name.", show_default=False)]


@app.command("list", epilog=EVERYWHERE)
def list_command(context: typer.Context, target: Target) -> None:
    """Show each sink of a table: what waits for it, and why."""
    sinks.show(context.obj, target)


@app.command("check", epilog=EVERYWHERE)
def check_command(context: typer.Context, target: Target, sink: Sink) -> None:
    """Try whether a sink takes rows, without leaving a trace; exit 1 if it does not."""
    raise typer.Exit(sinks.check(context.obj, target, sink))


@app.command("resume", epilog=EVERYWHERE)
def resume_command(context: typer.Context, target: Target, sink: Sink) -> None:
    """Try a parked sink now."""
    sinks.act(context.obj, target, sink, "resume")


@app.command("waive", epilog=EVERYWHERE)
def waive_command(context: typer.Context, target: Target, sink: Sink) -> None:
    """Give up what waits for a dead sink; imports end without it, and say so."""
    sinks.act(context.obj, target, sink, "waive")
