"""What the server does every second, and less often: ops that are due, sinks, metering, sweeping."""

import time
from collections.abc import Collection
from dataclasses import dataclass
from threading import Event
from typing import Any

from sqlalchemy import Connection, func, select, update

from millrace.api.jobs.sink_watch import SinkWatch
from millrace.api.jobs.sweeping import sweep
from millrace.api.op_log import OpLog
from millrace.api.uploads.in_flight import InFlight
from millrace.auth.quotas import Quotas
from millrace.auth.tokens import USES_SECONDS, Tokens
from millrace.control.state import OPEN
from millrace.exchange.mailboxes import Exchange
from millrace.model.imports import ADMITTED
from millrace.model.ops import Op
from millrace.model.ops.imports import ExpireImport
from millrace.model.ops.spans import ExpireSpan
from millrace.model.ops.tables import PurgeTable
from millrace.settings import ApiSettings
from millrace.store import tables as t
from millrace.store.engine import ControlStore

SWEEP_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Timer:
    settings: ApiSettings
    store: ControlStore
    exchange: Exchange
    op_log: OpLog
    in_flight: InFlight
    sinks: SinkWatch
    tokens: Tokens
    quotas: Quotas

    def run(self, stopping: Event) -> None:
        swept = noted = time.monotonic()
        while not stopping.wait(min(1.0, self.settings.lease_seconds / 4)):
            self._append_due()
            self.sinks.look()
            if time.monotonic() > noted + USES_SECONDS:
                noted = time.monotonic()
                self.tokens.note_uses()
                self.quotas.write()
            if time.monotonic() > swept + SWEEP_SECONDS:
                swept = time.monotonic()
                sweep(self.store, self.exchange)

    def _append_due(self) -> None:
        lease, retention = self.settings.lease_seconds, self.settings.drop_retention_seconds
        with self.store.read() as connection:
            due = due_ops(connection, time.time_ns() // 1000, lease, retention, self.in_flight.at_work)
        for op in due:
            self.op_log.append(op)


def renew_leases(store: ControlStore) -> None:
    """An upload or a span that was open when the platform went down gets its whole lease again."""
    now_us = time.time_ns() // 1000
    with store.write() as connection:
        connection.execute(update(t.uploads).values(seen_us=now_us))
        connection.execute(update(t.spans).where(t.spans.c.state == OPEN).values(seen_us=now_us))


def due_ops(
    connection: Connection, now_us: int, lease_seconds: int, drop_retention_seconds: int, at_work: Collection[str] = ()
) -> list[Op[Any]]:
    """Ops for silent uploads, unused spans, and dropped tables past their retention.

    `at_work`: uploads whose bytes are being taken in, whatever their leases say."""
    # Copied before the leases are read: an upload that has left the set by then has renewed its lease.
    taken_in = frozenset(at_work)
    seen_us = func.coalesce(t.uploads.c.seen_us, t.imports.c.begun_us)
    silent = (
        select(t.imports.c.id, t.imports.c.tenant)
        .outerjoin(t.uploads, t.uploads.c.import_id == t.imports.c.id)
        .where(t.imports.c.state == ADMITTED, seen_us < now_us - lease_seconds * 1_000_000)
    )
    # A span with a member under way is in use.
    lease_over = t.spans.c.seen_us + t.spans.c.lease_seconds * 1_000_000 < now_us
    unused = select(t.spans).where(t.spans.c.state == OPEN, t.spans.c.open_members == 0, lease_over)
    retained_from = now_us - drop_retention_seconds * 1_000_000
    dropped = select(t.tables).where(t.tables.c.dropped_us < retained_from, t.tables.c.is_purged.is_(False))
    return [
        *(
            ExpireImport(row.tenant, row.id, idle_seconds=lease_seconds)
            for row in connection.execute(silent)
            if row.id not in taken_in
        ),
        *(ExpireSpan(row.tenant, row.name) for row in connection.execute(unused)),
        *(PurgeTable(row.tenant, row.name, dropped_us=row.dropped_us) for row in connection.execute(dropped)),
    ]
