"""Imports: admitted, received, stopped, published, settled."""

from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millrace.control.rules import errors, spans
from millrace.control.rules.admitting import admit, reserve
from millrace.control.rules.quotas import one_more_import
from millrace.control.rules.reporting import reported, with_report
from millrace.control.rules.tables import known_table
from millrace.control.rules.tenants import refuse_departed
from millrace.control.state import Announce, Close, Effect, Send, State, Step, Table
from millrace.model import chunk
from millrace.model.chunk import CHUNK_BYTES
from millrace.model.errors import Clash, Invalid, Missing, TooLarge
from millrace.model.imports import (
    ADMITTED,
    ALTER,
    AMEND,
    APPEND,
    CANCELLED,
    COMPLETED,
    DELETE,
    FAILED,
    LOAD,
    PROCESSING,
    PUBLISHING,
    STOPPING,
    TRUNCATE,
    Counts,
    Import,
    outcome,
)
from millrace.model.ops import CANCEL_IMPORT, STOP_IMPORT, Op
from millrace.model.table import Budget

DEFAULT_MAX_BYTES = 64 << 30
# A compressed file that swells more than this is refused while it is read.
MOST_INFLATION = 500
# Each row that cannot be cut (an unclosed quote, a row over the limit) takes up to two chunks of its own.
SPARE_CHUNKS = 2001


def begin(state: State, op: Op, at_us: int, partition: int) -> Step:
    table = known_table(state, op)
    same = state.by_key.get(op.body.get("idempotency_key") or "")
    if same is not None:
        return _begun_before(state, same, op)
    refuse_departed(state.tenant)
    state = one_more_import(state)
    kind = op.body.get("kind", LOAD)
    _refuse_kind(table, kind)
    limit = min(
        table.definition.table.max_file_bytes or DEFAULT_MAX_BYTES, op.body.get("max_bytes") or DEFAULT_MAX_BYTES
    )
    length = op.body.get("length")
    if length is not None and length > limit:
        raise TooLarge(
            f"The file has {length:,} bytes; {op.tenant}/{op.subject} takes at most {limit:,}.",
            remedy="Split the file, or raise max_file_size_mb.",
        )
    if kind == AMEND:
        state = errors.claim(state, op)
    versions = most_chunks(limit if length is None else min(limit, length * MOST_INFLATION))
    first = reserve(table, at_us)
    imp = Import(
        id=op.id,
        tenant=op.tenant,
        table=op.subject,
        definition=table.definition.fingerprint,
        state=ADMITTED,
        first_version=first,
        versions=versions,
        sinks=table.definition.table.sinks,
        begun_us=at_us,
        options={**op.body.get("options", {}), "max_plain_bytes": limit, **_claimed(op)},
        idempotency_key=op.body.get("idempotency_key"),
        kind=kind,
        span=op.body.get("span"),
        of=op.body.get("of"),
        publish=table.definition.table.publish,
    )
    after, effects = admit(state, op, imp, first + versions - 1)
    return after, effects, {"import": imp.id, "repeated": False}


def _claimed(op: Op) -> dict[str, str]:
    return {"rows": op.body["rows"]} if "rows" in op.body else {}


def _refuse_kind(table: Table, kind: str) -> None:
    if kind not in (LOAD, DELETE, AMEND):
        raise Invalid(f"An upload cannot be a {kind!r}.", remedy=f"Choose {LOAD}, {DELETE} or {AMEND}.")
    if kind == DELETE and not table.definition.table.primary_key:
        raise Clash(
            f"{table.tenant}/{table.name} has no primary key to delete rows by.",
            remedy="Truncate it, or declare a primary key in a new generation.",
            code="no_key",
        )


def most_chunks(size: int) -> int:
    """Two neighbouring chunks together hold more than one chunk's worth, and text in another encoding may double."""
    return 2 * -(-2 * size // CHUNK_BYTES) + SPARE_CHUNKS


def _begun_before(state: State, before: Import, op: Op) -> Step:
    if before.table != op.subject:
        raise Clash(
            f"The idempotency key was used for {before.tenant}/{before.table}.",
            remedy="Use a new key for a new import.",
            code="key_reused",
        )
    return state, (), {"import": before.id, "repeated": True}


def append(state: State, op: Op, at_us: int, partition: int) -> Step:
    """Rows that came in the op itself: admitted, received and on their way in one step."""
    table = known_table(state, op)
    refuse_departed(state.tenant)
    streams = _in_step(state, op)
    version = reserve(table, at_us)
    announced = {"chunks": 1, "rows": int(op.body["rows"]), "bytes": int(op.body["plain_bytes"])}
    imp = Import(
        id=op.id,
        tenant=op.tenant,
        table=op.subject,
        definition=table.definition.fingerprint,
        state=PROCESSING,
        first_version=version,
        versions=1,
        sinks=table.definition.table.sinks,
        begun_us=at_us,
        announced=announced,
        kind=APPEND,
        span=op.body.get("span"),
    )
    after, effects = admit(replace(state, streams=streams), op, imp, version)
    rows = Send(
        imp.id, 0, version, imp.definition, chunk.ROWS,
        announced["rows"], announced["bytes"], int(op.body["checksum"]), b64decode(op.body["payload"]),
        key=op.body.get("key"),
    )  # fmt: skip
    return after, (*effects, rows), {"import": imp.id, "version": version}


def _in_step(state: State, op: Op) -> dict[str, int]:
    streams = dict(state.streams)
    for stream, (first, last) in op.body.get("streams", {}).items():
        known = streams.get(stream, 0)
        if first != known + 1 or last < first:
            raise Clash(
                f"Stream {stream!r} is at row {known}; rows {first} to {last} do not follow it.",
                remedy="Open the stream again and go on behind the number it answers.",
                code="out_of_step",
            )
        streams[stream] = last
    return streams


def open_stream(state: State, op: Op, at_us: int, partition: int) -> Step:
    known_table(state, op)
    refuse_departed(state.tenant)
    return state, (), {"stream": op.body["stream"], "seq": state.streams.get(op.body["stream"], 0)}


def end(state: State, op: Op, at_us: int, partition: int) -> Step:
    imp = known_import(state, op)
    announced = {name: int(op.body[name]) for name in ("chunks", "rows", "bytes")}
    if imp.options.get("received") == announced:
        return state, (), {"import": imp.id}
    if imp.announced is not None or not imp.accepts_chunks:
        raise Clash(f"Import {imp.id} is already {imp.state}.", code="not_open")
    options = {**imp.options, "written": op.body.get("written"), "received": announced}
    ended = replace(imp, state=PROCESSING, announced=announced, options=options)
    return state.with_import(ended), (Announce("import.received", imp.id, announced),), {"import": imp.id}


def _closing(final: str, error: Callable[[Op], dict[str, str]]) -> Callable[[State, Op, int, int], Step]:
    def rule(state: State, op: Op, at_us: int, partition: int) -> Step:
        imp = known_import(state, op)
        if imp.is_over or imp.state == STOPPING:
            return state, (), {"import": imp.id, "state": imp.state}
        if imp.kind in (ALTER, TRUNCATE):
            raise Clash(
                f"Import {imp.id} is a change of {imp.tenant}/{imp.table} that is in force already.",
                remedy="Wait for its end.",
                code="not_open",
            )
        if imp.state == PUBLISHING:
            raise Clash(f"Import {imp.id} is being published.", remedy="Wait for its end.", code="not_open")
        if op.kind not in (CANCEL_IMPORT, STOP_IMPORT) and imp.announced is not None:
            raise Clash(f"Import {imp.id} has been received whole.", code="not_open")
        reason = error(op)
        stopping = replace(imp, state=STOPPING, final=final, error=reason)
        effects = (Close(imp.id), Announce("import.stopping", imp.id, {"final": final, "error": reason}))
        return state.with_import(stopping), effects, {"import": imp.id, "state": STOPPING}

    return rule


def _cancelled(op: Op) -> dict[str, str]:
    return {"code": "cancelled", "message": "The import was cancelled.", "remedy": ""}


def _expired(op: Op) -> dict[str, str]:
    idle = int(op.body.get("idle_seconds", 0))
    message = f"The upload broke off: nothing arrived for {idle} seconds."
    return {
        "code": "expired",
        "message": message,
        "remedy": "Import the file again; rows that arrived are not doubled.",
    }


def _failed(op: Op) -> dict[str, str]:
    return {key: str(op.body["error"].get(key, "")) for key in ("code", "message", "remedy")}


cancel = _closing(CANCELLED, _cancelled)
expire = _closing(FAILED, _expired)
fail = _closing(FAILED, _failed)
stop = _closing(FAILED, _failed)


def publish(state: State, op: Op, at_us: int, partition: int) -> Step:
    """Every sink holds every accepted row: one more chunk tells them to show it. From here on it cannot be cancelled."""
    imp = known_import(state, op)
    if imp.state != PROCESSING or imp.announced is None:
        return state, (), {"import": imp.id, "state": imp.state}
    final, _ = outcome(imp, Counts(**op.body["counts"]), op.body.get("failure"), budget_of(op))
    if final != COMPLETED:
        return settle(state, op, at_us, partition)
    number = imp.announced["chunks"]
    announced = {**imp.announced, "chunks": number + 1}
    publishing = replace(with_report(imp, op), state=PUBLISHING, announced=announced)
    show = Send(imp.id, number, imp.first_version + number, imp.definition, chunk.PUBLISH)
    return state.with_import(publishing), (show,), {"import": imp.id, "state": PUBLISHING}


def settle(state: State, op: Op, at_us: int, partition: int) -> Step:
    imp = known_import(state, op)
    if imp.is_over:
        return state, (), {"import": imp.id, "state": imp.state}
    counts = Counts(**op.body["counts"])
    final, error = outcome(imp, counts, op.body.get("failure"), budget_of(op))
    imp = with_report(imp, op)
    refused = op.body.get("refused") or {}
    options = {**imp.options, "refused": refused} if refused else imp.options
    settled = replace(
        imp, state=final, error=error, ended_us=at_us, counts=counts, durable=op.body["durable"], options=options
    )
    state = errors.release(state.with_import(settled), settled)
    if state.table is not None:
        state = replace(state, table=replace(state.table, open_imports=max(state.table.open_imports - 1, 0)))
    state, of_span = spans.member_settled(state, settled, at_us)
    data = {"table": f"{imp.tenant}/{imp.table}", "rows": _rows(counts), "durable": settled.durable, "error": error}
    told: Effect = Announce(f"import.{final}", imp.id, {**data, **_more_about(settled)})
    return state, (told, *reported(settled), *of_span), {"import": imp.id, "state": final}


def _more_about(imp: Import) -> dict[str, Any]:
    refused = imp.options.get("refused", {})
    sinks = {
        sink: {"durable_chunks": imp.durable.get(sink, 0), "parked_chunks": 0, "refused_rows": refused.get(sink, 0)}
        for sink in imp.sinks
    }
    told = {"kind": imp.kind, "span": imp.span, "of": imp.of}
    return {**told, "sinks": sinks, "waived": imp.options.get("waived", [])}


def budget_of(op: Op) -> Budget:
    """The budget of the definition that the import was admitted under, as the ledger read it there."""
    return Budget(**op.body.get("budget", {}))


def _rows(counts: Counts) -> dict[str, Any]:
    return {"read": counts.read, "accepted": counts.accepted, "rejected": counts.rejected, "ignored": counts.ignored}


def known_import(state: State, op: Op) -> Import:
    imp = state.imports.get(op.subject)
    if imp is None or imp.tenant != op.tenant:
        raise Missing(f"There is no import {op.subject}.", code="no_import")
    return imp
