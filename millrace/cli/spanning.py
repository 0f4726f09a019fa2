"""The `span` commands. Waiting exits 0 when the span has ended, 1 when it was aborted or time is up."""

import sys

from millrace.cli.printing import print_json, print_table, printable
from millrace.cli.session import EXIT_FAILED, Session
from millrace.cli.tenancy import of_tenant
from millrace.client import Millrace
from millrace.client.spans import SpanDocument, Spans, is_over

SPAN_COLUMNS = ("span", "state", "imports", "open", "read", "accepted", "rejected", "ignored", "seconds", "begun")


def begin(session: Session, name: str, tenant: str | None, lease_seconds: int | None) -> None:
    with Millrace.from_home(session.home) as connection:
        _say(session, Spans(connection, of_tenant(connection, tenant)).begin(name, lease_seconds=lease_seconds))


def end(session: Session, name: str, tenant: str | None, *, wait: bool) -> int:
    with Millrace.from_home(session.home) as connection:
        spans = Spans(connection, of_tenant(connection, tenant))
        span = spans.end(name)
        if wait and not is_over(span):
            span = spans.wait(name)
    _say(session, span)
    return EXIT_FAILED if span["state"] == "aborted" else 0


def abort(session: Session, name: str, tenant: str | None, reason: str) -> None:
    with Millrace.from_home(session.home) as connection:
        _say(session, Spans(connection, of_tenant(connection, tenant)).abort(name, reason=reason))


def touch(session: Session, name: str, tenant: str | None) -> None:
    with Millrace.from_home(session.home) as connection:
        _say(session, Spans(connection, of_tenant(connection, tenant)).touch(name))


def show(session: Session, name: str, tenant: str | None) -> None:
    with Millrace.from_home(session.home) as connection:
        span = Spans(connection, of_tenant(connection, tenant)).show(name)
    if session.json:
        print_json(span)
        return
    facts: list[tuple[str, object]] = [*zip(SPAN_COLUMNS, _row(span), strict=True)]
    facts += [("ended", span["ended_at"]), ("lease", f"{span['lease_seconds']} s"), ("expires", span["expires_at"])]
    if error := span["error"]:
        facts += [("because of", error["member"]), ("error", error["message"])]
    print_table(("", ""), facts)


def list_(session: Session, tenant: str | None, state: str | None, prefix: str | None, limit: int) -> None:
    with Millrace.from_home(session.home) as connection:
        found = Spans(connection, of_tenant(connection, tenant)).list(state=state, prefix=prefix, limit=limit)
    if session.json:
        for span in found:
            print_json(span)
    else:
        print_table(SPAN_COLUMNS, [_row(span) for span in found])


def wait(session: Session, name: str, tenant: str | None, timeout: float | None) -> int:
    """Time that ran out is a failure, too: the span has not ended."""
    with Millrace.from_home(session.home) as connection:
        span = Spans(connection, of_tenant(connection, tenant)).wait(name, timeout=timeout)
    _say(session, span)
    if not is_over(span):
        print(f"It has not ended within {timeout:g} s.", file=sys.stderr)
    return 0 if span["state"] == "ended" else EXIT_FAILED


def span_line(span: SpanDocument) -> str:
    """One span as a line of a log: its state, its counts, and who is to blame."""
    rows = ", ".join(f"{count:,} {verdict}" for verdict, count in span["rows"].items())
    line = f"span {span['name']}: {span['state']}; {span['imports']:,} imports; rows: {rows}; {span['seconds']:.2f} s"
    if error := span["error"]:
        line += f"; because of {error['member']}: {error['message']}"
    return printable(line)


def _say(session: Session, span: SpanDocument) -> None:
    if session.json:
        print_json(span)
    else:
        print(span_line(span), flush=True)


def _row(span: SpanDocument) -> tuple[object, ...]:
    rows = span["rows"]
    counts = (rows["read"], rows["accepted"], rows["rejected"], rows["ignored"])
    return (
        span["name"],
        span["state"],
        span["imports"],
        span["open_members"],
        *counts,
        span["seconds"],
        span["begun_at"],
    )
