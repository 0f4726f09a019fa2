"""Commands of the table log: each command's name, arguments and help."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.lazy import LazyModule

if TYPE_CHECKING:
    from millrace.cli import changing
else:
    changing = LazyModule("millrace.cli.changing")

EVERYWHERE = "With every command: --home FOLDER, --json (for programs), --debug (tracebacks)."
Target = Annotated[str, typer.Argument(metavar="TENANT/TABLE", show_default=False)]
ImportId = Annotated[str, typer.Argument(metavar="IMPORT", help="The import's id.", show_default=False)]
Rule = Annotated[str | None, typer.Option(help="Only rows rejected by this rule.", show_default=False)]
NoTurn = Annotated[
    bool, typer.Option("--no-turn", help="On a busy exclusive table: be refused instead of waiting in line.")
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return once it is accepted.")]


def register(app: typer.Typer) -> None:
    for name, function in COMMANDS.items():
        app.command(name, epilog=EVERYWHERE)(function)


def truncate(context: typer.Context, target: Target, no_turn: NoTurn = False, no_wait: NoWait = False) -> None:
    """Empty a table.

    Rows of every import before this one go, also those still on their way."""
    code = changing.change(context.obj, target, "truncate", wait_turn=not no_turn, wait=not no_wait)
    raise typer.Exit(code)


def drop(context: typer.Context, target: Target, no_turn: NoTurn = False) -> None:
    """Drop a table. It can be restored for some days."""
    raise typer.Exit(changing.change(context.obj, target, "drop", wait_turn=not no_turn, wait=False))


def restore(context: typer.Context, target: Target) -> None:
    """Bring a dropped table back, with its rows."""
    raise typer.Exit(changing.change(context.obj, target, "restore", wait_turn=True, wait=False))


def history(context: typer.Context, target: Target) -> None:
    """Show every definition a table ever had."""
    changing.history(context.obj, target)


def reasons(context: typer.Context, import_id: ImportId) -> None:
    """Count the rejected rows of an import by reason."""
    changing.count(context.obj, import_id)


def replay(
    context: typer.Context,
    import_id: ImportId,
    rule: Rule = None,
    span: Annotated[str | None, typer.Option(help="The span to join.", show_default=False)] = None,
    no_wait: NoWait = False,
) -> None:
    """Judge rejected rows again, by the table as it is now.

    They keep their versions, so they never replace newer rows. Each row can be replayed, amended or discarded once."""
    raise typer.Exit(changing.replay_rows(context.obj, import_id, rule, span, not no_wait))


def amend(
    context: typer.Context,
    import_id: ImportId,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Corrected rows.", exists=True, show_default=False)],
    rule: Rule = None,
    no_wait: NoWait = False,
) -> None:
    """Import corrected rows in place of rejected ones."""
    raise typer.Exit(changing.amend_rows(context.obj, import_id, file, rule, not no_wait))


def discard(context: typer.Context, import_id: ImportId, rule: Rule = None) -> None:
    """Give rejected rows up."""
    raise typer.Exit(changing.discard_rows(context.obj, import_id, rule))


COMMANDS: dict[str, Callable[..., None]] = {
    "truncate": truncate,
    "drop": drop,
    "restore": restore,
    "history": history,
    "reasons": reasons,
    "replay": replay,
    "amend": amend,
    "discard": discard,
}
