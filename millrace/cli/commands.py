"""The command group: global options are understood anywhere on the line, and errors become a sentence and an exit code."""

from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from millrace.cli.session import EXIT_FAILED, EXIT_UNREACHABLE
from millrace.model.errors import MillraceError, Unavailable

_GLOBAL_FLAGS = ("--json", "--debug")
_GLOBAL_VALUES = ("--home",)


class Commands(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, hoisted(args))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except MillraceError as failed:
            if ctx.params.get("debug"):
                raise
            typer.echo(f"{failed.message}\n{failed.remedy}".strip(), err=True)
            raise typer.Exit(EXIT_UNREACHABLE if isinstance(failed, Unavailable) else EXIT_FAILED) from None


def hoisted(args: Sequence[str]) -> list[str]:
    """The same line with the global options in front, where the group looks for them."""
    front: list[str] = []
    back: list[str] = []
    rest = iter(args)
    for arg in rest:
        if arg == "--":
            return [*front, *back, arg, *rest]
        if arg in _GLOBAL_FLAGS or arg.startswith(tuple(f"{name}=" for name in _GLOBAL_VALUES)):
            front.append(arg)
        elif arg in _GLOBAL_VALUES:
            front += [arg, *([value] if (value := next(rest, None)) is not None else [])]
        else:
            back.append(arg)
    return front + back
