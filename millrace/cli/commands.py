"""The group of all commands: a command's module is imported when it is used, and errors become a sentence and a code.

Global options are understood anywhere on the line."""

import errno
from collections.abc import Sequence
from importlib import import_module
from itertools import islice
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from millrace.cli.printing import printable, printable_lines
from millrace.cli.session import EXIT_FAILED, EXIT_UNREACHABLE, CommandSession
from millrace.model.errors import MillraceError, Unavailable

EVERYWHERE = "With every command: --home FOLDER, --json (for programs), --debug (tracebacks)."
_GLOBAL_FLAGS = ("--json", "--debug")


class CommandEntry(NamedTuple):
    """`module` has a typer app that holds the command, or is the group, of this name; `help` repeats its first line."""

    module: str
    help: str


class Commands(TyperGroup):
    table: dict[str, CommandEntry]

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # Names and help are known without the modules; whatever runs is loaded first.
        self.commands = {name: TyperCommand(name, help=entry.help) for name, entry in self.table.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, known, rest = super().resolve_command(ctx, args)
        return name, self.load(name) if known and name else known, rest

    def load(self, name: str) -> TyperCommand | TyperGroup:
        module = import_module(f"{__package__}.{self.table[name].module}")
        group = get_group(module.app)
        _finish(group)
        found: Any = group.commands.get(name, group)
        return found  # type: ignore[no-any-return]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, hoisted(args))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except MillraceError as failed:
            if ctx.params.get("debug"):
                raise
            # A setting's example belongs behind what is wrong, in one line.
            between = " " if failed.code == "bad_setting" else "\n"
            typer.echo(printable_lines(f"{failed.message}{between}{failed.remedy}".strip()), err=True)
            raise typer.Exit(EXIT_UNREACHABLE if isinstance(failed, Unavailable) else EXIT_FAILED) from None
        except OSError as failed:
            # Whoever read the output has left: typer ends the command in silence.
            if ctx.params.get("debug") or failed.errno == errno.EPIPE:
                raise
            place = printable(str(failed.filename or "The output"))
            typer.echo(f"{place} cannot be used: {failed.strerror or failed}.\nChoose another place.", err=True)
            raise typer.Exit(EXIT_FAILED) from None


def _finish(command: Any) -> None:
    """What holds for every command and group, so that modules need not repeat it."""
    command.epilog = EVERYWHERE
    command.context_class = CommandSession
    # Rich help takes as much time as everything else together.
    command.rich_markup_mode = None
    if isinstance(command, TyperGroup):
        command.no_args_is_help = True
        for each in command.commands.values():
            _finish(each)


def hoisted(args: Sequence[str]) -> list[str]:
    """The same line with the global options in front, where the group looks for them."""
    front: list[str] = []
    back: list[str] = []
    rest = iter(args)
    for arg in rest:
        if arg == "--":
            return [*front, *back, arg, *rest]
        if arg in _GLOBAL_FLAGS or arg.startswith("--home="):
            front.append(arg)
        elif arg == "--home":
            front += [arg, *islice(rest, 1)]
        else:
            back.append(arg)
    return front + back
