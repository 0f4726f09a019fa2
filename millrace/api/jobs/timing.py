"""Ops that become due with time: for silent uploads, unused spans, and dropped tables past their retention."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, Select, func, select

from millrace.model.imports import ADMITTED
from millrace.model.ops import Op
from millrace.model.ops.imports import ExpireImport
from millrace.model.ops.spans import ExpireSpan
from millrace.model.ops.tables import PurgeTable
from millrace.store import tables as t


def due_ops(
    connection: Connection, now_us: int, lease_seconds: int, drop_retention_seconds: int, at_work: Collection[str] = ()
) -> list[Op[Any]]:
    """`at_work`: uploads whose bytes are being taken in, whatever their leases say."""
    # Copied before the leases are read: an upload that has left the set by then has renewed its lease.
    taken_in = frozenset(at_work)
    silent = [
        ExpireImport(row.tenant, row.id, idle_seconds=lease_seconds)
        for row in connection.execute(_silent_uploads(now_us - lease_seconds * 1_000_000))
        if row.id not in taken_in
    ]
    unused = [ExpireSpan(row.tenant, row.name) for row in connection.execute(_unused_spans(now_us))]
    dropped = [
        PurgeTable(row.tenant, row.name, dropped_us=row.dropped_us)
        for row in connection.execute(_dropped_tables(now_us - drop_retention_seconds * 1_000_000))
    ]
    return [*silent, *unused, *dropped]


def _silent_uploads(before_us: int) -> Select[Any]:
    seen_us = func.coalesce(t.uploads.c.seen_us, t.imports.c.begun_us)
    return (
        select(t.imports.c.id, t.imports.c.tenant)
        .outerjoin(t.uploads, t.uploads.c.import_id == t.imports.c.id)
        .where(t.imports.c.state == ADMITTED, seen_us < before_us)
    )


def _unused_spans(now_us: int) -> Select[Any]:
    """A span with a member under way is in use."""
    lease_over = t.spans.c.seen_us + t.spans.c.lease_seconds * 1_000_000 < now_us
    return select(t.spans.c.tenant, t.spans.c.name).where(
        t.spans.c.state == "open", t.spans.c.open_members == 0, lease_over
    )


def _dropped_tables(before_us: int) -> Select[Any]:
    return select(t.tables.c.tenant, t.tables.c.name, t.tables.c.dropped_us).where(
        t.tables.c.dropped_us < before_us, t.tables.c.is_purged.is_(False)
    )
