"""The command `app test`: a program and files in; what it does well and what not out."""

import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.declarations import read_declarations
from millrace.cli.printing import answer, printable
from millrace.cli.session import EXIT_FAILED, CommandSession
from millrace.model.errors import Clash, Invalid

if TYPE_CHECKING:
    from millrace.manage.trial import Check


def try_program(
    session: CommandSession,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="The program and its words.")],
    given: Annotated[Path, typer.Option("--in", help="Files for its `in`.", exists=True, file_okay=False)],
    declarations: Annotated[
        list[Path] | None, typer.Option("--tables", help="Declarations of the tenant's tables.")
    ] = None,
    env: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="As in the agreement's app.env.")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="It runs until it is told to stop.")] = False,
    seconds: Annotated[float, typer.Option(help="How long it may take.", min=0.1)] = 60.0,
    out: Annotated[Path | None, typer.Option(help="Keep what it wrote in this folder.")] = None,
) -> None:
    """Try a program: does it keep to the contract?

    Without a platform. It is run twice, and once killed; exit 1 if a check fails."""
    # The managers of client apps take long to import.
    from millrace.manage.trial import Trial  # noqa: PLC0415

    declared = read_declarations(declarations, "client") if declarations else []
    tables = tuple(each.table for each in declared if each.table)
    if out is not None and out.exists() and any(out.iterdir()):
        raise Clash(f"{out} is not empty.", remedy="Name a folder that is not there yet.")
    environ = _environ(env or [])
    with tempfile.TemporaryDirectory(prefix="millrace-app-") as scratch:
        trial = Trial(_program(command), given, out or Path(scratch), tables, stream, seconds, environ)
        failed = [check for check in trial.checks() if _has_failed(session, check)]
    raise typer.Exit(EXIT_FAILED if failed else 0)


def _program(command: list[str]) -> tuple[str, ...]:
    """A program that is named by its path is resolved here, not in the folder where it runs."""
    words = shlex.split(command[0]) if len(command) == 1 else command
    here = Path(words[0])
    return (str(here.resolve()) if here.is_file() else words[0], *words[1:])


def _environ(given: list[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    if wrong := [name for name, equals, _ in pairs if not name or not equals]:
        raise Invalid(f"{wrong[0]!r} sets no variable.", remedy="Write --env NAME=VALUE.")
    return {name: value for name, _, value in pairs}


def _has_failed(session: CommandSession, check: "Check") -> bool:
    """Shows the check as well."""
    mark = "ok " if check.ok else "?? " if check.ok is None else "BAD"
    document = {"check": check.name, "ok": check.ok, "found": check.found}
    answer(session, document, f"{mark} {check.name:<13} {printable(check.found)}")
    return check.ok is False
