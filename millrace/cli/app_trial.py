"""The `app test` command: a program and files in, what it does well and what not out."""

import shlex
import tempfile
from pathlib import Path

from millrace.cli.declarations import read_declarations
from millrace.cli.printing import print_json, printable
from millrace.cli.session import EXIT_FAILED, Session
from millrace.manage.trial import Check, Trial
from millrace.model.errors import Clash


def run(
    session: Session,
    command: list[str],
    given: Path,
    declarations: list[Path],
    stream: bool,
    seconds: float,
    out: Path | None,
) -> int:
    words = shlex.split(command[0]) if len(command) == 1 else command
    # A program that is named by its path is meant from here, not from where it runs.
    here = Path(words[0])
    program = (str(here.resolve()), *words[1:]) if here.is_file() else tuple(words)
    named = [each.table for each in read_declarations(declarations, "client") if each.table] if declarations else []
    if out is not None and out.exists() and any(out.iterdir()):
        raise Clash(f"{out} is not empty.", remedy="Name a folder that is not there yet.")
    with tempfile.TemporaryDirectory(prefix="millrace-app-") as scratch:
        folder = out or Path(scratch)
        trial = Trial(program, given, folder, tuple(named), stream, seconds)
        failed = sum([_say(session, check) for check in trial.checks()])
    return EXIT_FAILED if failed else 0


def _say(session: Session, check: Check) -> bool:
    """Whether it failed."""
    if session.json:
        print_json({"check": check.name, "ok": check.ok, "found": check.found})
    else:
        mark = "ok " if check.ok else "?? " if check.ok is None else "BAD"
        print(f"{mark} {check.name:<13} {printable(check.found)}", flush=True)
    return check.ok is False
