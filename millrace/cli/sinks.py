"""The commands about a table's sinks: list, check, resume, waive."""

from datetime import UTC, datetime
from typing import Any

import typer

from millrace.cli.printing import print_json, print_table
from millrace.cli.session import EXIT_FAILED, Session
from millrace.client import Millrace

COLUMNS = ("sink", "kind", "required", "waiting", "bytes", "lag s", "last version", "refused", "parked since", "note")


def show(session: Session, target: str) -> None:
    with Millrace.from_home(session.home) as connection:
        found = connection.sinks.list(*_table(target))
    if session.json:
        for one in found:
            print_json(one)
        return
    print_table(COLUMNS, [_row(one) for one in found])


def _row(one: dict[str, Any]) -> tuple[object, ...]:
    return (
        one["name"],
        one["kind"],
        one["required"],
        one.get("waiting", 0),
        one.get("bytes", 0),
        one.get("lag_seconds") or 0.0,
        _moment(one.get("last_version", 0) / 1e6),
        one.get("refused_rows", 0),
        _moment(one.get("parked_since") or 0),
        "; ".join(_notes(one)),
    )


def _notes(one: dict[str, Any]) -> list[str]:
    notes = ["drained, then forgotten"] if one.get("is_draining") else []
    backfill = one.get("backfill")
    if backfill:
        source = f" from {backfill['source']}, {backfill['rows']:,} rows" if backfill["source"] else ""
        notes.append(f"back-fill {backfill['state']}{source}{' ' if backfill['reason'] else ''}{backfill['reason']}")
    return [*notes, *([one["reason"]] if one.get("reason") else [])]


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="milliseconds")[:-6] if seconds else ""


def check(session: Session, target: str, sink: str) -> int:
    with Millrace.from_home(session.home) as connection:
        answer = connection.sinks.check(*_table(target), sink)
    if session.json:
        print_json(answer)
    else:
        print(f"{sink} takes rows." if answer["ok"] else answer["reason"])
    return 0 if answer["ok"] else EXIT_FAILED


def act(session: Session, target: str, sink: str, what: str) -> None:
    with Millrace.from_home(session.home) as connection:
        act = connection.sinks.waive if what == "waive" else connection.sinks.resume
        answer = act(*_table(target), sink)
    if session.json:
        print_json(answer)
    elif what == "waive":
        print(f"{len(answer['imports'])} imports no longer wait for {sink}.")
    else:
        print(f"{sink} is tried again now.")


def _table(target: str) -> tuple[str, str]:
    tenant, _, table = target.partition("/")
    if not table:
        raise typer.BadParameter(f"{target} should be TENANT/TABLE.")
    return tenant, table
