"""What the server does every second, and less often: ops that are due, sinks, metering, sweeping."""

import time
from dataclasses import dataclass
from threading import Event

from sqlalchemy import update

from millrace.api.jobs.sink_watch import SinkWatch
from millrace.api.jobs.sweeping import sweep
from millrace.api.jobs.timing import due_ops
from millrace.api.op_log import OpLog
from millrace.api.uploads.in_flight import InFlight
from millrace.auth.quotas import Quotas
from millrace.auth.tokens import USES_SECONDS, Tokens
from millrace.control.state import OPEN
from millrace.exchange.mailboxes import Exchange
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
