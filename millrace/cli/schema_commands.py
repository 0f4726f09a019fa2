"""Commands about declarations as main.py registers them: `diff`, its arguments and help."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.lazy import LazyModule

if TYPE_CHECKING:
    from millrace.cli import diffing
else:
    diffing = LazyModule("millrace.cli.diffing")

EVERYWHERE = "With every command: --home FOLDER, --json (for programs), --debug (tracebacks)."
NewGeneration = Annotated[
    bool, typer.Option("--new-generation", help="Allow any change of a table: it begins anew, without its rows.")
]

Strict = Annotated[bool, typer.Option("--strict", help="Refuse what can be read but hardly be meant.")]


def register(app: typer.Typer) -> None:
    app.command("diff", epilog=EVERYWHERE)(diff)


def diff(
    context: typer.Context,
    file: Annotated[
        list[Path], typer.Option("--file", "-f", help="A YAML or JSON file, or a folder of them.", show_default=False)
    ],
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="[PATH]...", help="More of them.", show_default=False)
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Of tables whose document names none.", show_default=False)] = None,
    new_generation: NewGeneration = False,
    strict: Strict = False,
) -> None:
    """Show what applying declarations would change.

    Also what the sinks would do to the rows already there. Exit 1 if something would be refused."""
    paths = [*file, *(more or [])]
    raise typer.Exit(diffing.run(context.obj, paths, tenant, new_generation=new_generation, strict=strict))
