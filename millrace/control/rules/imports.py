"""Imports: admitted, received, stopped, published, settled."""

from dataclasses import replace
from typing import Any

from millrace.control.rules import errors, rule, spans
from millrace.control.rules.admitting import about_import, admit, begun, one_more_import, reserve
from millrace.control.rules.repeated import begun_before, mark_of
from millrace.control.rules.tables import known_table
from millrace.control.rules.tenants import refuse_departed
from millrace.control.state import Announce, Close, Effect, Send, State, Step, Table
from millrace.model import chunk
from millrace.model.chunk import CHUNK_BYTES
from millrace.model.content import CONTENT
from millrace.model.errors import Clash, Invalid, Missing, TooLarge
from millrace.model.imports import (
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
    Import,
    outcome,
)
from millrace.model.ops import imports as ops
from millrace.model.ops.base import ImportOp
from millrace.model.ops.results import ImportStatus
from millrace.model.quality import BROKEN, summary

DEFAULT_MAX_BYTES = 64 << 30
# A compressed file that grows by more than this factor is refused while it is read.
MOST_INFLATION = 500
# Each row that cannot be cut (an unclosed quote, a row over the limit) takes up to two chunks of its own.
SPARE_CHUNKS = 2001


@rule(ops.BeginImport)
def begin(state: State, op: ops.BeginImport, at_us: int, partition: int) -> Step:
    table = known_table(state, op)
    same = state.by_key.get(op.idempotency_key or "")
    if same is not None:
        return begun_before(state, same, op)
    refuse_departed(state.tenant)
    state = one_more_import(state)
    _refuse_kind(table, op.import_kind)
    limit = min(table.definition.table.max_file_bytes or DEFAULT_MAX_BYTES, op.max_bytes or DEFAULT_MAX_BYTES)
    length = op.length
    if length is not None and length > limit:
        raise TooLarge(
            f"The file has {length:,} bytes; {op.tenant}/{op.table} takes at most {limit:,}.",
            remedy="Split the file, or raise max_file_size_mb.",
        )
    if op.import_kind == AMEND:
        if op.rows is None:
            raise Invalid("An amendment must name the rejected rows that it corrects.", code="malformed_op")
        state = errors.claim(state, op, op.rows, AMEND)
    versions = most_chunks(limit if length is None else min(limit, length * MOST_INFLATION))
    first = reserve(table, at_us)
    options = {**op.options, "max_plain_bytes": limit, **({} if op.rows is None else {"rows": op.rows})}
    if op.import_kind == AMEND and errors.origin_of(state, op).deletes:
        options["deletes"] = True
    # Nobody asks again without a key.
    kept = mark_of(op).kept() if op.idempotency_key else {}
    imp = replace(
        begun(table, op, op.import_kind, first, versions, at_us),
        options={**options, **({CONTENT: kept} if kept else {})},
        idempotency_key=op.idempotency_key,
        of=op.of,
        publish=table.definition.table.publish,
    )
    after, effects = admit(state, op, imp, first + versions - 1)
    return after, effects, ops.ImportBegun(imp.id, repeated=False)


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
    """Two neighbouring chunks together are larger than one full chunk, and text in another encoding may double in size."""
    return 2 * -(-2 * size // CHUNK_BYTES) + SPARE_CHUNKS


@rule(ops.EndImport)
def end(state: State, op: ops.EndImport, at_us: int, partition: int) -> Step:
    imp = known_import(state, op)
    announced = {"chunks": op.chunks, "rows": op.rows, "bytes": op.bytes}
    announced |= {"repeated_headers": op.repeated_headers} if op.repeated_headers else {}
    if imp.options.get("received") == announced:
        return state, (), ops.ImportReceived(imp.id)
    if imp.announced is not None or not imp.accepts_chunks:
        raise Clash(f"Import {imp.id} is already {imp.state}.", code="not_open")
    options = {**imp.options, "written": op.written, "received": announced}
    if op.content is not None:
        options[CONTENT] = {**imp.options.get(CONTENT, {}), **op.content}
    ended = replace(imp, state=PROCESSING, announced=announced, options=options)
    return state.with_import(ended), (Announce("import.received", imp.id, announced),), ops.ImportReceived(imp.id)


@rule(ops.CancelImport)
def cancel(state: State, op: ops.CancelImport, at_us: int, partition: int) -> Step:
    return _stop(state, op, CANCELLED, {"code": "cancelled", "message": "The import was cancelled.", "remedy": ""})


@rule(ops.ExpireImport)
def expire(state: State, op: ops.ExpireImport, at_us: int, partition: int) -> Step:
    reason = {
        "code": "expired",
        "message": f"The upload broke off: nothing arrived for {int(op.idle_seconds)} seconds.",
        "remedy": "Import the file again; rows that arrived are not doubled.",
    }
    return _stop(state, op, FAILED, reason)


@rule(ops.FailImport)
def fail(state: State, op: ops.FailImport, at_us: int, partition: int) -> Step:
    return _stop(state, op, FAILED, _reason(op.error))


@rule(ops.StopImport)
def stop(state: State, op: ops.StopImport, at_us: int, partition: int) -> Step:
    return _stop(state, op, FAILED, _reason(op.error))


def _reason(error: dict[str, str]) -> dict[str, str]:
    return {key: error.get(key, "") for key in ("code", "message", "remedy")}


def _stop(state: State, op: ImportOp[Any], final: str, reason: dict[str, str]) -> Step:
    """No more chunks are judged; the import ends in the state `final` when those before the stop have settled."""
    imp = known_import(state, op)
    if imp.is_over or imp.state == STOPPING:
        return state, (), ImportStatus(imp.id, imp.state)
    if imp.kind in (ALTER, TRUNCATE):
        raise Clash(
            f"Import {imp.id} is a change of {imp.tenant}/{imp.table} that is in force already.",
            remedy="Wait for its end.",
            code="not_open",
        )
    if imp.state == PUBLISHING:
        raise Clash(f"Import {imp.id} is being published.", remedy="Wait for its end.", code="not_open")
    if isinstance(op, ops.ExpireImport | ops.FailImport) and imp.announced is not None:
        raise Clash(f"Import {imp.id} has been received whole.", code="not_open")
    stopping = replace(imp, state=STOPPING, final=final, error=reason)
    effects = (Close(imp.id), Announce("import.stopping", imp.id, {"final": final, "error": reason}))
    return state.with_import(stopping), effects, ImportStatus(imp.id, STOPPING)


@rule(ops.NoteImport)
def note(state: State, op: ops.NoteImport, at_us: int, partition: int) -> Step:
    """Announces what was seen of an import; changes nothing. Nobody needs it once the import is over."""
    imp = known_import(state, op)
    events = () if imp.is_over else (about_import(imp, op.what, {"table": f"{imp.tenant}/{imp.table}", **op.data}),)
    return state, events, ImportStatus(imp.id, imp.state)


@rule(ops.PublishImport)
def publish(state: State, op: ops.PublishImport, at_us: int, partition: int) -> Step:
    """Every sink has every accepted row; one more chunk tells them to show the rows. It can no longer be cancelled."""
    imp = known_import(state, op)
    if imp.state != PROCESSING or imp.announced is None:
        return state, (), ImportStatus(imp.id, imp.state)
    final, _ = outcome(imp, op.counts, op.failure, op.budget)
    if final != COMPLETED:
        return settled(state, op, at_us)
    number = imp.announced["chunks"]
    announced = {**imp.announced, "chunks": number + 1}
    publishing = replace(with_report(imp, op), state=PUBLISHING, announced=announced)
    return state.with_import(publishing), (Send.change(imp, number, chunk.PUBLISH),), ImportStatus(imp.id, PUBLISHING)


@rule(ops.SettleImport)
def settle(state: State, op: ops.SettleImport, at_us: int, partition: int) -> Step:
    return settled(state, op, at_us)


def settled(state: State, op: ops.SettledOp, at_us: int) -> Step:
    """The end of an import."""
    imp = known_import(state, op)
    if imp.is_over:
        return state, (), ImportStatus(imp.id, imp.state)
    final, error = outcome(imp, op.counts, op.failure, op.budget)
    imp = with_report(imp, op)
    options = {**imp.options, "refused": op.refused} if op.refused else imp.options
    ended = replace(
        imp, state=final, error=error, ended_us=at_us, counts=op.counts, durable=op.durable, options=options
    )
    state = errors.release(state.with_import(ended), ended)
    if state.table is not None:
        state = replace(state, table=replace(state.table, open_imports=max(state.table.open_imports - 1, 0)))
    state, of_span = spans.member_settled(state, ended, at_us)
    data = {"table": f"{imp.tenant}/{imp.table}", "rows": op.counts.rows, "durable": ended.durable, "error": error}
    event: Effect = about_import(imp, final, {**data, **_more_about(ended)})
    return state, (event, *reported(ended), *of_span), ImportStatus(imp.id, final)


def _more_about(imp: Import) -> dict[str, Any]:
    refused = imp.options.get("refused", {})
    sinks = {
        sink: {"durable_chunks": imp.durable.get(sink, 0), "parked_chunks": 0, "refused_rows": refused.get(sink, 0)}
        for sink in imp.sinks
    }
    about = {"kind": imp.kind, "span": imp.span, "of": imp.of}
    return {**about, "sinks": sinks, "waived": imp.options.get("waived", [])}


def with_report(imp: Import, op: ops.SettledOp) -> Import:
    """The quality report in the op is kept with the import."""
    return imp if op.quality is None else replace(imp, options={**imp.options, "quality": op.quality})


def reported(imp: Import) -> tuple[Announce, ...]:
    """Rows of senders come in many small imports: of these only broken rules are announced."""
    report = imp.options.get("quality")
    if report is None or (imp.kind == APPEND and not any(rule["verdict"] == BROKEN for rule in report["rules"])):
        return ()
    data = {"table": f"{imp.tenant}/{imp.table}", "state": imp.state, **summary(report)}
    return (Announce("import.quality", imp.id, data),)


def known_import(state: State, op: ImportOp[Any]) -> Import:
    imp = state.imports.get(op.import_id)
    if imp is None or imp.tenant != op.tenant:
        raise Missing(f"There is no import {op.import_id}.", code="no_import")
    return imp
