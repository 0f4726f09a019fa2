"""The group `sink`: the sinks of a table."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from millrace.cli.arguments import Target, split_target
from millrace.cli.printing import answer, answer_all, counted
from millrace.cli.session import EXIT_FAILED, CommandSession

COLUMNS = ("sink", "kind", "required", "waiting", "bytes", "lag s", "last version", "refused", "parked since", "note")
LEAST = ("bytes", "last version", "required", "refused", "kind", "lag s")
SinkName = Annotated[str, typer.Argument(metavar="SINK", help="Its name.")]
app = typer.Typer(help="Where a table's rows end up.")


@app.command("list")
def list_(session: CommandSession, target: Target) -> None:
    """Show each sink of a table: what waits for it, and why."""
    found = session.platform.sinks.list(*split_target(target))
    answer_all(session, COLUMNS, found, _row, LEAST)


def _row(sink: dict[str, Any]) -> tuple[object, ...]:
    return (
        sink["name"],
        sink["kind"],
        sink["required"],
        sink.get("waiting", 0),
        sink.get("bytes", 0),
        sink.get("lag_seconds") or 0.0,
        _moment(sink.get("last_version", 0) / 1e6),
        sink.get("refused_rows", 0),
        _moment(sink.get("parked_since") or 0),
        "; ".join(_notes(sink)),
    )


def _notes(sink: dict[str, Any]) -> list[str]:
    notes = ["drained, then forgotten"] if sink.get("is_draining") else []
    backfill = sink.get("backfill")
    if backfill:
        source = f" from {backfill['source']}, {counted(backfill['rows'], 'row')}" if backfill["source"] else ""
        notes.append(f"back-fill {backfill['state']}{source}{' ' if backfill['reason'] else ''}{backfill['reason']}")
    return [*notes, *([sink["reason"]] if sink.get("reason") else [])]


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="milliseconds")[:-6] if seconds else ""


@app.command("check")
def check(session: CommandSession, target: Target, sink: SinkName) -> None:
    """Try whether a sink takes rows, without leaving a trace; exit 1 if it does not."""
    found = session.platform.sinks.check(*split_target(target), sink)
    answer(session, found, f"{sink} takes rows." if found["ok"] else found["reason"])
    raise typer.Exit(0 if found["ok"] else EXIT_FAILED)


@app.command("resume")
def resume(session: CommandSession, target: Target, sink: SinkName) -> None:
    """Try a parked sink now."""
    found = session.platform.sinks.resume(*split_target(target), sink)
    answer(session, found, f"{sink} is tried again now.")


@app.command("waive")
def waive(session: CommandSession, target: Target, sink: SinkName) -> None:
    """Give up what waits for a dead sink; imports end without it, and say so."""
    found = session.platform.sinks.waive(*split_target(target), sink)
    count = len(found["imports"])
    answer(session, found, f"{counted(count, 'import')} no longer wait{'s' if count == 1 else ''} for {sink}.")
