"""The `app test` command: a program and files in, what it does well and what not out."""

import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path

from millrace.cli.declarations import read_declarations
from millrace.cli.printing import print_json, printable
from millrace.cli.session import EXIT_FAILED, Session
from millrace.manage.trial import Check, Trial
from millrace.model.errors import Clash, Invalid


@dataclass(frozen=True, slots=True)
class Order:
    """What the user asked for. `declarations`: of the tenant's tables; `env`: NAME=VALUE each; `out`: where to keep it."""

    command: tuple[str, ...]
    given: Path
    declarations: tuple[Path, ...]
    env: tuple[str, ...]
    stream: bool
    seconds: float
    out: Path | None


def run(session: Session, order: Order) -> int:
    words = tuple(shlex.split(order.command[0])) if len(order.command) == 1 else order.command
    # A program that is named by its path is meant from here, not from where it runs.
    here = Path(words[0])
    program = (str(here.resolve()), *words[1:]) if here.is_file() else words
    declared = read_declarations(list(order.declarations), "client") if order.declarations else []
    tables = tuple(each.table for each in declared if each.table)
    if order.out is not None and order.out.exists() and any(order.out.iterdir()):
        raise Clash(f"{order.out} is not empty.", remedy="Name a folder that is not there yet.")
    with tempfile.TemporaryDirectory(prefix="millrace-app-") as scratch:
        folder = order.out or Path(scratch)
        trial = Trial(program, order.given, folder, tables, order.stream, order.seconds, _environ(order.env))
        failed = sum([_say(session, check) for check in trial.checks()])
    return EXIT_FAILED if failed else 0


def _environ(given: tuple[str, ...]) -> dict[str, str]:
    pairs = [one.partition("=") for one in given]
    if wrong := [name for name, equals, _ in pairs if not name or not equals]:
        raise Invalid(f"{wrong[0]!r} sets no variable.", remedy="Write --env NAME=VALUE.")
    return {name: value for name, _, value in pairs}


def _say(session: Session, check: Check) -> bool:
    """Whether it failed."""
    if session.json:
        print_json({"check": check.name, "ok": check.ok, "found": check.found})
    else:
        mark = "ok " if check.ok else "?? " if check.ok is None else "BAD"
        print(f"{mark} {check.name:<13} {printable(check.found)}", flush=True)
    return check.ok is False
