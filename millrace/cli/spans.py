"""The group `span`. Waiting exits 0 when the span has ended, 1 when it was aborted or time is up."""

import sys
from typing import Annotated

import typer

from millrace.cli.arguments import OfTenant, of_tenant
from millrace.cli.printing import answer, answer_all, counted, print_json, print_table, printable
from millrace.cli.session import EXIT_FAILED, CommandSession
from millrace.client.documents import SpanDocument, is_span_over

COLUMNS = ("span", "state", "imports", "open", "read", "accepted", "rejected", "ignored", "seconds", "begun")
LEAST = ("begun", "seconds", "ignored", "open")
SpanName = Annotated[str, typer.Argument(metavar="SPAN", help="Levels joined by '/'.")]
app = typer.Typer(help="Group imports, and hear when all of them are done.")


@app.command("begin")
def begin(
    session: CommandSession,
    name: SpanName,
    tenant: OfTenant = None,
    lease: Annotated[int | None, typer.Option(help="Seconds it may lie unused before it is aborted.", min=1)] = None,
) -> None:
    """Open a span, and every level above it.

    Imports join it with `millrace import … --span`."""
    span = session.platform.spans.begin(of_tenant(session, tenant), name, lease_seconds=lease)
    answer(session, span, span_line(span))


@app.command("end")
def end(
    session: CommandSession,
    name: SpanName,
    tenant: OfTenant = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Until everything in it is durable; exit 1 if it was aborted.")
    ] = False,
) -> None:
    """Close a span: nothing more joins it, and it ends when all of it is durable."""
    tenant = of_tenant(session, tenant)
    span = session.platform.spans.end(tenant, name)
    if wait and not is_span_over(span):
        span = session.platform.spans.wait(tenant, name)
    answer(session, span, span_line(span))
    raise typer.Exit(EXIT_FAILED if span["state"] == "aborted" else 0)


@app.command("abort")
def abort(
    session: CommandSession,
    name: SpanName,
    tenant: OfTenant = None,
    reason: Annotated[str, typer.Option(help="For those who listen.")] = "",
) -> None:
    """Give a span up, and those above it. Its imports go on."""
    span = session.platform.spans.abort(of_tenant(session, tenant), name, reason=reason)
    answer(session, span, span_line(span))


@app.command("touch")
def touch(session: CommandSession, name: SpanName, tenant: OfTenant = None) -> None:
    """Renew the lease of a span that nothing happens in for long."""
    span = session.platform.spans.touch(of_tenant(session, tenant), name)
    answer(session, span, span_line(span))


@app.command("show")
def show(session: CommandSession, name: SpanName, tenant: OfTenant = None) -> None:
    """Show one span closely."""
    span = session.platform.spans.show(of_tenant(session, tenant), name)
    if session.json:
        return print_json(span)
    facts: list[tuple[str, object]] = [*zip(COLUMNS, _row(span), strict=True)]
    facts += [("ended", span["ended_at"]), ("lease", f"{span['lease_seconds']} s"), ("expires", span["expires_at"])]
    if error := span["error"]:
        facts += [("because of", error["member"]), ("error", error["message"])]
    print_table(("", ""), facts)


@app.command("list")
def list_(
    session: CommandSession,
    tenant: OfTenant = None,
    state: Annotated[str | None, typer.Option(help="open, ending, ended or aborted.")] = None,
    below: Annotated[str | None, typer.Option(help="Only this span and those below it.")] = None,
    limit: Annotated[int, typer.Option(help="How many of the latest.", min=1, max=1000)] = 100,
) -> None:
    """List spans, the latest first."""
    found = session.platform.spans.list(of_tenant(session, tenant), state=state, prefix=below, limit=limit)
    answer_all(session, COLUMNS, found, _row, LEAST)


@app.command("wait")
def wait(
    session: CommandSession,
    name: SpanName,
    tenant: OfTenant = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds at most.", min=0)] = None,
) -> None:
    """Wait until a span is over: exit 0 if it has ended, 1 if it was aborted."""
    span = session.platform.spans.wait(of_tenant(session, tenant), name, timeout=timeout)
    answer(session, span, span_line(span))
    if not is_span_over(span):
        print(f"It has not ended within {timeout:g} s.", file=sys.stderr)
    raise typer.Exit(0 if span["state"] == "ended" else EXIT_FAILED)


def span_line(span: SpanDocument) -> str:
    """One span as a line of a log: its state, its counts, and which member aborted it."""
    rows = ", ".join(f"{count:,} {verdict}" for verdict, count in span["rows"].items())
    imports = counted(span["imports"], "import")
    line = f"span {span['name']}: {span['state']}; {imports}; rows: {rows}; {span['seconds']:.2f} s"
    if error := span["error"]:
        line += f"; because of {error['member']}: {error['message']}"
    return printable(line)


def _row(span: SpanDocument) -> tuple[object, ...]:
    rows = span["rows"]
    counts = (rows["read"], rows["accepted"], rows["rejected"], rows["ignored"])
    state = (span["name"], span["state"], span["imports"], span["open_members"])
    return (*state, *counts, span["seconds"], span["begun_at"])
