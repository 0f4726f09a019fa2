"""The commands about client apps: list, run, runs, files, logs."""

import sys
import time
from typing import Any

from millrace.cli.printing import print_json, print_table
from millrace.cli.session import EXIT_FAILED, Session
from millrace.client import Millrace
from millrace.client.apps import AppClient
from millrace.model.errors import Missing, Unavailable

LOOK_SECONDS = 0.2
BEGIN_SECONDS = 60.0
OVER = ("succeeded", "failed", "interrupted")


def show_all(session: Session) -> None:
    with Millrace.from_home(session.home) as connection:
        found = connection.apps.list()
    if session.json:
        print_json(found)
        return
    rows = [_app_row(item) for item in found["items"]]
    print_table(("tenant", "mode", "schedule", "state", "run", "next run"), rows)
    backend = found["backend"]
    if backend is None:
        print("The ingestion managers do not answer: see the log managers.log.", file=sys.stderr)
        return
    print(f"limits by {backend['limits']}; out is watched by {backend['watching']}", file=sys.stderr)
    if backend["confinement"]["warning"]:
        print(f"warning: {backend['confinement']['warning']}", file=sys.stderr)


def _app_row(item: dict[str, Any]) -> tuple[object, ...]:
    agreement, status = item["agreement"], item["status"] or {}
    schedule = agreement.get("schedule")
    cron = schedule.get("cron") if isinstance(schedule, dict) else schedule
    mode = agreement["app"].get("mode", "batch")
    return item["tenant"], mode, cron, status.get("state"), status.get("run"), status.get("next_run_at")


def run(session: Session, tenant: str, wait: bool) -> int:
    with Millrace.from_home(session.home) as connection:
        apps = connection.apps
        before = {each["id"] for each in apps.runs(tenant)}
        apps.run(tenant)
        if not wait:
            _say(session, {"tenant": tenant, "asked": True}, f"A run for {tenant} is asked for.")
            return 0
        ended = _ended(apps, tenant, before)
    _say(session, ended, _run_line(ended))
    return 0 if ended["state"] == "succeeded" and not ended["files"]["failed"] else EXIT_FAILED


def _ended(apps: AppClient, tenant: str, before: set[str]) -> dict[str, Any]:
    """The first run behind those before, once it is over."""
    begun_by, run_id = time.monotonic() + BEGIN_SECONDS, None
    while run_id is None:
        newer = [each["id"] for each in apps.runs(tenant) if each["id"] not in before]
        run_id = newer[-1] if newer else None
        if run_id is None and time.monotonic() > begun_by:
            raise Unavailable(f"No run of {tenant} began.", remedy="See `millrace app list` and the log managers.log.")
        time.sleep(LOOK_SECONDS)
    while (document := apps.show_run(tenant, run_id))["state"] not in OVER:
        time.sleep(LOOK_SECONDS)
    return document


def runs(session: Session, tenant: str, limit: int) -> None:
    with Millrace.from_home(session.home) as connection:
        found = connection.apps.runs(tenant, limit=limit)
    if session.json:
        for one in found:
            print_json(one)
        return
    columns = ("run", "cause", "state", "code", "started", "ended", "done", "failed", "rows")
    print_table(columns, [_run_row(one) for one in found])


def _run_row(one: dict[str, Any]) -> tuple[object, ...]:
    known = (one[name] for name in ("id", "cause", "state", "exit_code", "started_at", "ended_at"))
    return *known, one["files"]["done"], one["files"]["failed"], one["rows"]["read"]


def files(session: Session, tenant: str, run_id: str | None) -> None:
    with Millrace.from_home(session.home) as connection:
        apps = connection.apps
        found = apps.files(tenant, run_id or _latest(apps, tenant))
    if session.json:
        for one in found:
            print_json(one)
        return
    rows = [
        (
            one["file"],
            one["table"],
            one["import"],
            one["state"],
            one["rows"]["accepted"],
            one["rows"]["rejected"],
            _why(one),
        )
        for one in found
    ]
    print_table(("file", "table", "import", "state", "accepted", "rejected", "why"), rows)


def _why(report: dict[str, Any]) -> str:
    error = report["error"]
    return f"{error['message']} {error['remedy']}".strip() if error else ""


def logs(session: Session, tenant: str, run_id: str | None, name: str | None, tail: int) -> None:
    """Of a program's two outputs, the second one on standard error."""
    with Millrace.from_home(session.home) as connection:
        apps = connection.apps
        run_id = run_id or _latest(apps, tenant)
        if session.json:
            print_json(apps.show_run(tenant, run_id))
            return
        kept = {log["name"] for log in apps.show_run(tenant, run_id)["logs"]}
        for each in [name] if name else sorted({"stdout.log", "stderr.log"} & kept, reverse=True):
            stream = sys.stderr if each.startswith("stderr") else sys.stdout
            for piece in apps.log(tenant, run_id, each, tail_bytes=tail):
                stream.buffer.write(piece)
            stream.flush()


def _latest(apps: AppClient, tenant: str) -> str:
    found = apps.runs(tenant, limit=1)
    if not found:
        raise Missing(f"The client app of {tenant} has not run.", remedy="See `millrace app list`.", code="no_run")
    return str(found[0]["id"])


def _run_line(one: dict[str, Any]) -> str:
    files, rows = one["files"], one["rows"]["read"]
    code = "" if one["exit_code"] in (0, None) else f" with code {one['exit_code']}"
    return f"{one['id']} {one['state']}{code}; files: {files['done']} done, {files['failed']} failed; {rows} rows"


def _say(session: Session, document: dict[str, Any], line: str) -> None:
    if session.json:
        print_json(document)
    else:
        print(line, flush=True)
