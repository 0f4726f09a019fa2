"""millrace quality and release: each command's name, arguments and help."""

from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.lazy import LazyModule

if TYPE_CHECKING:
    from millrace.cli import quality as reports
else:
    reports = LazyModule("millrace.cli.quality")

EVERYWHERE = "With every command: --home FOLDER, --json (for programs), --debug (tracebacks)."


def register(app: typer.Typer) -> None:
    app.command("quality", epilog=EVERYWHERE)(quality)
    app.command("release", epilog=EVERYWHERE)(release)


def quality(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="IMPORT|TENANT/TABLE", help="One import, or a table's trend.", show_default=False)
    ],
    last: Annotated[int, typer.Option(help="How many imports make the trend.", min=1, max=500)] = 20,
) -> None:
    """Show how the rules of quality fared: in one import, or over a table's last ones."""
    reports.show(context.obj, target, last)


def release(
    context: typer.Context,
    import_id: Annotated[str, typer.Argument(metavar="IMPORT", help="The import's id.", show_default=False)],
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return once it is accepted.")] = False,
) -> None:
    """Let a held import end as if its rules had been kept."""
    raise typer.Exit(reports.release_import(context.obj, import_id, not no_wait))
