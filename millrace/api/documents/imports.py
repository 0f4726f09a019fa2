"""Imports as callers read them: JSON documents, found one by one or listed."""

import time
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, func, not_, or_, select

from millrace.account.ledger import refused_rows, rejecting_chunks
from millrace.api.documents.waiting import STALLED_AFTER_US, PlatformOutlook, WaitReasons
from millrace.auth.tokens import Caller
from millrace.control.claims import ClosedRows
from millrace.model.errors import Missing
from millrace.model.imports import (
    ADMITTED,
    ALTER,
    FAILED,
    NOTHING,
    PROCESSING,
    PUBLISHING,
    RECEIVING,
    REQUESTED,
    STALLED,
    Import,
)
from millrace.model.moments import iso
from millrace.model.names import is_import_id
from millrace.model.ops.imports import BeginImport
from millrace.model.ops.results import Refusal
from millrace.model.ops.rows import ReplayErrors
from millrace.model.sinks import ERROR_STORE
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from millrace.store.records import to_import

_BEGINNING = (BeginImport.KIND, ReplayErrors.KIND)
_IMPORTS = (
    select(t.imports, t.uploads.c.confirmed, t.uploads.c.length, t.uploads.c.seen_us, t.claims.c.rows.label("claimed"))
    .outerjoin(t.uploads, t.uploads.c.import_id == t.imports.c.id)
    .outerjoin(t.claims, t.claims.c.import_id == t.imports.c.id)
)
_REQUESTED = select(t.requests).where(t.requests.c.kind.in_(_BEGINNING), t.requests.c.applied.is_(False))
_HAS_CHUNKS = or_(
    func.coalesce(t.uploads.c.confirmed["chunks"].as_integer(), 0) > 0, t.imports.c.counts["chunks"].as_integer() > 0
)


def import_document(connection: Connection, import_id: str, outlook: PlatformOutlook | None = None) -> dict[str, Any]:
    row = connection.execute(_IMPORTS.where(t.imports.c.id == import_id)).first()
    reasons = WaitReasons(connection, outlook)
    return _find_requested(connection, import_id, reasons) if row is None else _document(row, connection, reasons)


class VisibleImports:
    """Imports as one caller sees them: those of others do not exist for it."""

    def __init__(self, store: ControlStore, caller: Caller, outlook: PlatformOutlook | None = None) -> None:
        self._store = store
        self._caller = caller
        self._outlook = outlook

    def find(self, import_id: str) -> dict[str, Any]:
        if not is_import_id(import_id):
            raise Missing(f"There is no import {import_id[:40]!r}.", code="no_import")
        with self._store.read() as connection:
            document = import_document(connection, import_id, self._outlook)
        if self._caller.tenant not in (None, document["tenant"]) or not self._caller.sees_table(document["table"]):
            raise Missing(f"There is no import {import_id}.", code="no_import")
        return document

    def listed(
        self,
        limit: int,
        *,
        tenant: str | None = None,
        table: str | None = None,
        state: str | None = None,
        kind: str | None = None,
        span: str | None = None,
    ) -> list[dict[str, Any]]:
        """The newest first; changes of the tables themselves only where their kind is asked for, and what nobody has
        evaluated yet only where that state is. Of which kind and span those are is not known."""
        of, seen = self._caller.scope(tenant), self._caller.tables
        if state == REQUESTED:
            asked, chosen = t.requests.c, {"tenant": of, "subject": table}
            wanted = _only(_REQUESTED, asked, chosen, asked.subject, seen).order_by(asked.id.desc()).limit(limit)
            if kind or span:
                return []
            with self._store.read() as connection:
                reasons = WaitReasons(connection, self._outlook)
                return [_requested(row, reasons) for row in list(connection.execute(wanted))]
        stored, chosen = t.imports.c, {"tenant": of, "table_name": table, "kind": kind, "span": span}
        wanted = _only(_IMPORTS, stored, chosen, stored.table_name, seen)
        wanted = wanted if state is None else wanted.where(_is_shown_as(state))
        wanted = wanted if kind is not None else wanted.where(stored.kind != ALTER)
        with self._store.read() as connection:
            found = list(connection.execute(wanted.order_by(stored.id.desc()).limit(limit)))
            reasons = WaitReasons(connection, self._outlook)
            return [_document(row, connection, reasons) for row in found]


def _only(
    wanted: Select[Any], columns: Any, chosen: dict[str, str | None], table: Any, seen: frozenset[str] | None
) -> Select[Any]:
    """Rows with the chosen values, and only of the tables that the caller sees."""
    wanted = wanted.where(*(columns[name] == value for name, value in chosen.items() if value is not None))
    return wanted if seen is None else wanted.where(table.in_(sorted(seen)))


def _is_shown_as(state: str) -> ColumnElement[bool]:
    """`_shown_state` as a condition."""
    stored = t.imports.c.state
    is_quiet = t.imports.c.touched_us < time.time_ns() // 1000 - STALLED_AFTER_US
    told_apart = {
        ADMITTED: and_(stored == ADMITTED, not_(_HAS_CHUNKS)),
        RECEIVING: and_(stored == ADMITTED, _HAS_CHUNKS),
        PROCESSING: and_(stored == PROCESSING, not_(is_quiet)),
        STALLED: and_(stored == PROCESSING, is_quiet),
    }
    return told_apart.get(state, stored == state)


def _find_requested(connection: Connection, import_id: str, reasons: WaitReasons) -> dict[str, Any]:
    """An import whose op nobody has evaluated yet."""
    asked = select(t.requests).where(t.requests.c.id == import_id, t.requests.c.kind.in_(_BEGINNING))
    row = connection.execute(asked).first()
    if row is None or (row.applied and row.refusal is None):
        raise Missing(f"There is no import {import_id}.", code="no_import")
    return _requested(row, reasons)


def _requested(row: Any, reasons: WaitReasons) -> dict[str, Any]:
    return {
        "id": row.id,
        "tenant": row.tenant,
        "table": row.subject,
        "state": REQUESTED if row.refusal is None else FAILED,
        "rows": NOTHING.rows,
        "chunks": {"sent": 0, "judged": 0},
        "sinks": {},
        "started_at": iso(row.requested_us),
        "ended_at": None,
        "error": None if row.refusal is None else Refusal.from_dict(row.refusal).reason,
        "waiting_for": reasons.of_request(row) if row.refusal is None else None,
    }


def _document(row: Any, connection: Connection, reasons: WaitReasons) -> dict[str, Any]:
    sinks = SinkStatus(connection, reasons)
    values = row._mapping
    confirmed = values["confirmed"] or {}
    imp = to_import(values)
    counts = imp.counts
    announced = imp.announced or {}
    ended = imp.ended_us or time.time_ns() // 1000
    elapsed = max(ended - imp.begun_us, 1) / 1e6
    sent = announced.get("chunks", max(confirmed.get("chunks", 0), counts.chunks))
    durable = min((imp.durable.get(sink, 0) for sink in imp.sinks), default=counts.chunks)
    return {
        "id": imp.id,
        "tenant": imp.tenant,
        "table": imp.table,
        "state": _shown_state(imp, confirmed, values["touched_us"]),
        "rows": counts.rows,
        "repeated_headers": announced.get(
            "repeated_headers", (confirmed.get("cutter") or {}).get("repeated_headers", 0)
        ),
        "rejected_rows": _rejected_rows(imp, values["claimed"]),
        "chunks": {"sent": sent, "judged": counts.chunks},
        "lag": {"chunks": 0 if imp.is_over else max(sent - durable, 0)},
        "sinks": sinks.of(imp),
        "parked_rejected_chunks": sinks.parked_rejected(imp),
        "waived": imp.options.get("waived", []),
        "bytes": announced.get("bytes", confirmed.get("plain_bytes", 0)),
        "file_name": imp.options.get("file_name"),
        "started_at": iso(imp.begun_us),
        "ended_at": iso(imp.ended_us),
        "error": imp.error,
        "waiting_for": reasons.of(imp, values["touched_us"], values["seen_us"]),
        "kind": imp.kind,
        "span": imp.span,
        "of": imp.of,
        "definition": imp.definition,
        "first_version": imp.first_version,
        "rows_per_second": round(counts.read / elapsed),
        "eta_seconds": _eta(_expected_chunks(imp, confirmed, values["length"]), durable, elapsed),
    }


def _rejected_rows(imp: Import, claimed: bytes | None) -> dict[str, int]:
    """By state: open, amended, replayed, discarded. With those that sinks refused."""
    return ClosedRows.read(claimed).counts(imp.counts.rejected + sum(imp.options.get("refused", {}).values()))


def _shown_state(imp: Import, confirmed: dict[str, Any], touched_us: int) -> str:
    if imp.state == ADMITTED:
        return RECEIVING if confirmed.get("chunks") or imp.counts.chunks else ADMITTED
    if imp.state == PROCESSING and time.time_ns() // 1000 - touched_us > STALLED_AFTER_US:
        return STALLED
    return imp.state


def _expected_chunks(imp: Import, confirmed: dict[str, Any], length: int | None) -> float | None:
    """Of the whole file: as announced or, while it is received, as many for each byte as so far. Of a file that is
    compressed, or spooled before it is cut, nobody can tell; nor when one that is stopped or held will end."""
    if imp.state not in (ADMITTED, PROCESSING, PUBLISHING):
        return None
    if imp.announced is not None:
        return imp.announced["chunks"]
    read = (confirmed.get("cutter") or {}).get("offset")
    return confirmed["chunks"] * length / read if read and length else None


def _eta(expected: float | None, durable: int, elapsed: float) -> float | None:
    return round(elapsed * max(expected - durable, 0) / durable, 1) if expected and durable else None


class SinkStatus:
    """How imports stand in each of their sinks."""

    def __init__(self, connection: Connection, reasons: WaitReasons) -> None:
        self._connection = connection
        self._reasons = reasons

    def of(self, imp: Import) -> dict[str, dict[str, int]]:
        refused = imp.options.get("refused", {}) if imp.is_over else refused_rows(self._connection, imp.id)
        return {
            sink: {
                "durable_chunks": imp.durable.get(sink, 0),
                "parked_chunks": self._parked_chunks(imp, sink),
                "refused_rows": refused.get(sink, 0),
            }
            for sink in imp.sinks
        }

    def _parked_chunks(self, imp: Import, sink: str) -> int:
        """Judged, and held back by a target that takes nothing at the moment."""
        waiting = imp.counts.chunks - imp.durable.get(sink, 0)
        return waiting if waiting > 0 and self._is_parked(imp, sink) else 0

    def parked_rejected(self, imp: Import) -> int:
        """Chunks whose rejected rows are held back by an error store that takes nothing at the moment."""
        if imp.counts.rejected == 0 or not self._is_parked(imp, ERROR_STORE):
            return 0
        return max(rejecting_chunks(self._connection, imp.id) - imp.durable.get(ERROR_STORE, 0), 0)

    def _is_parked(self, imp: Import, sink: str) -> bool:
        return not imp.is_over and sink in self._reasons.parked(imp)
