"""The group `app`: client apps, the tenants' programs."""

import re
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.arguments import TenantName
from millrace.cli.declarations import read_declarations
from millrace.cli.printing import answer, answer_all, print_json, print_table, printable
from millrace.cli.session import EXIT_FAILED, CommandSession
from millrace.model.errors import Clash, Invalid, Missing, Unavailable

if TYPE_CHECKING:
    from millrace.client.apps import AppClient
    from millrace.manage.trial import Check

LOOK_SECONDS = 0.2
BEGIN_SECONDS = 60.0
# The output of a program, or of one of its replicas; not the older parts of it.
_OUTPUT = re.compile(r"std(out|err)(-[0-9]+)?\.log")
OVER = ("succeeded", "failed", "interrupted")
Run = Annotated[str | None, typer.Argument(metavar="[RUN]", help="Default: the latest.")]
Name = Annotated[str | None, typer.Argument(metavar="[APP]", help="Which one, if the tenant has several.")]
OfApp = Annotated[str | None, typer.Option("--app", help="Without RUN: of this app.")]
app = typer.Typer(help="Client apps: the tenants' programs.")


@app.command("list")
def list_(session: CommandSession) -> None:
    """List the client apps, how they do and how apart they run."""
    found = session.platform.apps.list()
    if session.json:
        return print_json(found)
    rows = [_app_row(item) for item in found["items"]]
    print_table(("tenant", "app", "mode", "schedule", "state", "run", "next run"), rows)
    backend = found["backend"]
    if backend is None:
        return print("The ingestion managers do not answer: see the log managers.log.", file=sys.stderr)
    means = f"confinement: {backend['confinement']['kind']}; limits by {backend['limits']}"
    print(f"{means}; out is watched by {backend['watching']}", file=sys.stderr)
    if backend["confinement"]["warning"]:
        print(f"warning: {backend['confinement']['warning']}", file=sys.stderr)


def _app_row(item: dict[str, Any]) -> tuple[object, ...]:
    agreement, status = item["agreement"], item["status"] or {}
    schedule = agreement.get("schedule")
    cron = schedule.get("cron") if isinstance(schedule, dict) else schedule
    mode = agreement["app"].get("mode", "batch")
    return item["tenant"], item["app"], mode, cron, status.get("state"), status.get("run"), status.get("next_run_at")


@app.command("run")
def run(
    session: CommandSession,
    tenant: TenantName,
    name: Name = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until its files are imported; exit 1 if any failed.")] = False,
) -> None:
    """Run a batch app now, beside its schedule."""
    before = {each["id"] for each in session.platform.apps.runs(tenant)}
    asked = session.platform.apps.run(tenant, app=name)
    if not wait:
        return answer(session, asked, f"A run for {tenant} is asked for.")
    ended = _ended(session.platform.apps, tenant, asked["app"], before)
    answer(session, ended, _run_line(ended))
    raise typer.Exit(0 if ended["state"] == "succeeded" and not ended["files"]["failed"] else EXIT_FAILED)


def _ended(apps: "AppClient", tenant: str, app_name: str, before: set[str]) -> dict[str, Any]:
    """The first run behind those before, once it is over."""
    begun_by, run_id = time.monotonic() + BEGIN_SECONDS, None
    while run_id is None:
        newer = [each["id"] for each in apps.runs(tenant, app=app_name) if each["id"] not in before]
        run_id = newer[-1] if newer else None
        if run_id is None and time.monotonic() > begun_by:
            raise Unavailable(f"No run of {tenant} began.", remedy="See `millrace app list` and the log managers.log.")
        time.sleep(LOOK_SECONDS)
    while (document := apps.show_run(tenant, run_id))["state"] not in OVER:
        time.sleep(LOOK_SECONDS)
    return document


def _run_line(run: dict[str, Any]) -> str:
    files, rows = run["files"], run["rows"]
    code = "" if run["exit_code"] in (0, None) else f" with code {run['exit_code']}"
    counts = ", ".join(f"{rows[name]:,} {name}" for name in ("read", "accepted", "rejected"))
    return f"{run['id']} {run['state']}{code}; files: {files['done']} done, {files['failed']} failed; rows: {counts}"


@app.command("runs")
def runs(
    session: CommandSession,
    tenant: TenantName,
    name: Name = None,
    limit: Annotated[int, typer.Option(help="How many.", min=1, max=200)] = 20,
) -> None:
    """List the latest runs."""
    found = session.platform.apps.runs(tenant, limit=limit, app=name)
    headers = ("run", "app", "cause", "state", "code", "started", "ended", "done", "failed", "rows", "rejected")
    answer_all(session, headers, found, _run_row, ("started", "code", "cause", "app"))


def _run_row(run: dict[str, Any]) -> tuple[object, ...]:
    known = (run[name] for name in ("id", "app", "cause", "state", "exit_code", "started_at", "ended_at"))
    return *known, run["files"]["done"], run["files"]["failed"], run["rows"]["read"], run["rows"]["rejected"]


@app.command("files")
def files(session: CommandSession, tenant: TenantName, run: Run = None, of: OfApp = None) -> None:
    """Show what became of the files of a run."""
    found = session.platform.apps.files(tenant, run or _latest(session.platform.apps, tenant, of))
    headers = ("file", "table", "import", "state", "accepted", "rejected", "why")
    answer_all(session, headers, found, _file_row, ("table", "accepted"))


def _file_row(file: dict[str, Any]) -> tuple[object, ...]:
    error, rows = file["error"], file["rows"]
    why = f"{error['message']} {error['remedy']}".strip() if error else ""
    known = (file[name] for name in ("file", "table", "import", "state"))
    return *known, rows["accepted"], rows["rejected"], why


@app.command("logs")
def logs(
    session: CommandSession,
    tenant: TenantName,
    run: Run = None,
    of: OfApp = None,
    name: Annotated[
        str | None, typer.Option(help="stdout.log, stderr.log, files/NAME …; default: both of the first.")
    ] = None,
    tail: Annotated[int, typer.Option(help="At most so many of the last bytes of each.", min=1)] = 1 << 20,
) -> None:
    """Show what a run wrote to its output and logs."""
    run = run or _latest(session.platform.apps, tenant, of)
    document = session.platform.apps.show_run(tenant, run)
    if session.json:
        return print_json(document)
    kept = {log["name"] for log in document["logs"]}
    shown = [each for each in kept if _OUTPUT.fullmatch(each)]
    for each in [name] if name else sorted(shown, reverse=True):
        stream = sys.stderr if each.startswith("stderr") else sys.stdout
        for piece in session.platform.apps.log(tenant, run, each, tail_bytes=tail):
            stream.buffer.write(piece)
        stream.flush()


def _latest(apps: "AppClient", tenant: str, app_name: str | None) -> str:
    found = apps.runs(tenant, limit=1, app=app_name)
    if not found:
        raise Missing(f"The client app of {tenant} has not run.", remedy="See `millrace app list`.", code="no_run")
    return str(found[0]["id"])


@app.command("test")
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
