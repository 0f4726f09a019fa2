"""Jobs that are done again and again, and the ops that become due with time."""

import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from threading import Event
from typing import Any

from sqlalchemy import Connection, func, select, update

from millrace.api.op_log import OpLog
from millrace.api.threads import Threads
from millrace.control.state import OPEN
from millrace.model.imports import ADMITTED
from millrace.model.ops import Op
from millrace.model.ops.imports import ExpireImport
from millrace.model.ops.spans import ExpireSpan
from millrace.model.ops.tables import PurgeTable
from millrace.settings import ApiSettings
from millrace.store import tables as t
from millrace.store.engine import ControlStore

Job = Callable[[], object]


def start_jobs(threads: Threads, jobs: Mapping[str, tuple[float, Job]]) -> None:
    """Does each job again and again, with a pause of so many seconds, until the platform stops. Each has a thread of its
    own: a job that is slow or fails delays no other."""
    for name, (seconds, job) in jobs.items():
        threads.start(name, partial(_repeat, seconds, job))


def _repeat(seconds: float, job: Job, stopping: Event) -> None:
    while not stopping.wait(seconds):
        job()


def append_due(settings: ApiSettings, store: ControlStore, op_log: OpLog, at_work: Collection[str]) -> None:
    lease, retention = settings.lease_seconds, settings.drop_retention_seconds
    with store.read() as connection:
        due = due_ops(connection, time.time_ns() // 1000, lease, retention, at_work)
    for op in due:
        op_log.append(op)


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
