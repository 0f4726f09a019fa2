"""The `span` commands. Waiting exits 0 when the span has ended, 1 when it was aborted or time is up."""

import sys

from millrace.cli.printing import print_json, print_table, printable
from millrace.cli.session import EXIT_FAILED, Session
from millrace.cli.tenancy import of_tenant
from millrace.client import Millrace
from millrace.client.documents import SpanDocument, is_span_over

SPAN_COLUMNS = ("span", "state", "imports", "open", "read", "accepted", "rejected", "ignored", "seconds", "begun")


def begin(session: Session, name: str, tenant: str | None, lease_seconds: int | None) -> None:
    with Millrace.from_home(session.home) as connection:
        _say(session, connection.spans.begin(of_tenant(connection, tenant), name, lease_seconds=lease_seconds))


def end(session: Session, name: str, tenant: str | None, *, wait: bool) -> int:
    with Millrace.from_home(session.home) as connection:
        tenant = of_tenant(connection, tenant)
        span = connection.spans.end(tenant, name)
        if wait and not is_span_over(span):
            span = connection.spans.wait(tenant, name)
    _say(session, span)
    return EXIT_FAILED if span["state"] == "aborted" else 0


def abort(session: Session, name: str, tenant: str | None, reason: str) -> None:
    with Millrace.from_home(session.home) as connection:
        _say(session, connection.spans.abort(of_tenant(connection, tenant), name, reason=reason))


def touch(session: Session, name: str, tenant: str | None) -> None:
    with Millrace.from_home(session.home) as connection:
        _say(session, connection.spans.touch(of_tenant(connection, tenant), name))


def show(session: Session, name: str, tenant: str | None) -> None:
    with Millrace.from_home(session.home) as connection:
        span = connection.spans.show(of_tenant(connection, tenant), name)
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
        found = connection.spans.list(of_tenant(connection, tenant), state=state, prefix=prefix, limit=limit)
    if session.json:
        for span in found:
            print_json(span)
    else:
        print_table(SPAN_COLUMNS, [_row(span) for span in found])


def wait(session: Session, name: str, tenant: str | None, timeout: float | None) -> int:
    """Time that ran out is a failure, too: the span has not ended."""
    with Millrace.from_home(session.home) as connection:
        span = connection.spans.wait(of_tenant(connection, tenant), name, timeout=timeout)
    _say(session, span)
    if not is_span_over(span):
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
