"""Deletes keys of streamed rows in the table log when their days are over: the ops stay, their rows can no longer be read.

Rows that are not delivered yet keep their key, because a control store that is rebuilt from the log must send them again."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from sqlalchemy import func, select

from millrace.exchange.log_keys import LogKey, LogKeys
from millrace.model.imports import TERMINAL
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from millrace.store.records import positions
from millrace.wire.client import Cluster
from millrace.wire.offsets import end_offsets
from millrace.wire.topics import TABLE_OPS

PAUSE_SECONDS = 600.0
# Rows sealed just before midnight are admitted after it.
MARGIN = timedelta(days=1)


class LogKeyExpiry:
    """What one look finds too old, the next one deletes: by then every op that such a key has sealed is in the log, whatever
    the clock said when it was sealed, and the controller must have applied them all."""

    def __init__(self, store: ControlStore, cluster: Cluster, keys: LogKeys, days: int = 7) -> None:
        self._store, self._cluster, self._keys = store, cluster, keys
        self.days = days
        self._old: list[LogKey] = []
        self._ends: Mapping[int, int] = {}
        self._looked_at = time.monotonic() - PAUSE_SECONDS

    def run(self) -> None:
        """Cheap if called often."""
        if time.monotonic() - self._looked_at >= PAUSE_SECONDS:
            self._looked_at = time.monotonic()
            self.look()

    def look(self) -> None:
        if self._old:
            self._delete()
        self._old = self._keys.before(datetime.now(UTC) - timedelta(days=self.days))
        self._ends = (
            {number: end for number, (_, end) in end_offsets(self._cluster, TABLE_OPS).items()} if self._old else {}
        )

    def _delete(self) -> None:
        unsettled = select(t.imports.c.tenant, func.min(t.imports.c.begun_us).label("begun_us")).where(
            t.imports.c.state.not_in(TERMINAL)
        )
        with self._store.read() as connection:
            applied = positions(connection, TABLE_OPS)
            found = connection.execute(unsettled.group_by(t.imports.c.tenant))
            oldest = {row.tenant: row.begun_us for row in found}
            # Ops that wait for their turn have no import yet.
            oldest |= dict.fromkeys(connection.scalars(select(t.waiting.c.tenant).distinct()), 0)
        if all(applied.get(number, 0) >= end for number, end in self._ends.items()):
            self._keys.forget([key for key in self._old if key.is_before(_needed_from(oldest.get(key.tenant)))])


def _needed_from(oldest_us: int | None) -> datetime:
    if oldest_us is None:
        return datetime.max.replace(tzinfo=UTC)
    return max(datetime.fromtimestamp(oldest_us / 1e6, UTC), datetime.fromtimestamp(0, UTC) + MARGIN) - MARGIN
