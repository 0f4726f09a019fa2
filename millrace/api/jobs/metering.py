"""What tenants used by day, what their tables take on disk, and who causes their lag: their quota or the platform."""

import time
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

from sqlalchemy import Connection, select

from millrace.exchange.tenant_files import TenantFiles
from millrace.model.imports import ADMITTED, ALTER, PROCESSING, PUBLISHING, STOPPING
from millrace.model.usage import MEASURE_SECONDS, day_of
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from millrace.store.tables import usage
from millrace.store.usage import COUNTED, note_storage

_BY_PLATFORM = (PROCESSING, PUBLISHING, STOPPING)


def usage_of(connection: Connection, tenant: str, days: int) -> list[dict[str, Any]]:
    """The newest day first; days without any are left out."""
    before = (datetime.now(UTC).date() - timedelta(days=days)).isoformat()
    wanted = select(usage).where(usage.c.tenant == tenant, usage.c.day > before)
    rows = connection.execute(wanted.order_by(usage.c.day.desc()))
    return [_document(row) for row in rows]


def usage_of_all(connection: Connection, day: str) -> list[dict[str, Any]]:
    rows = connection.execute(select(usage).where(usage.c.day == day).order_by(usage.c.tenant))
    return [{"tenant": row.tenant, **_document(row)} for row in rows]


def _document(row: Any) -> dict[str, Any]:
    counted = {name: getattr(row, name) for name in COUNTED}
    return {"day": row.day, **counted, "storage_bytes": row.storage_bytes}


def lag_of(connection: Connection, tenant: str, held: dict[str, float]) -> dict[str, Any]:
    """Of the imports under way: how long the one that waited longest was held back by what was agreed, and how long the
    platform has owed the end of the oldest that it has all of, or was not held back at all."""
    wanted = select(t.imports.c.id, t.imports.c.state, t.imports.c.begun_us).where(
        t.imports.c.tenant == tenant, t.imports.c.state.in_((ADMITTED, *_BY_PLATFORM)), t.imports.c.kind != ALTER
    )
    now_us = time.time_ns() // 1000
    rows = list(connection.execute(wanted))
    late = [(now_us - row.begun_us) / 1e6 - held.get(row.id, 0.0) for row in rows if row.state in _BY_PLATFORM]
    over = [held.get(row.id, 0.0) for row in rows]
    return {
        "open_imports": len(rows),
        "over_quota_seconds": round(max(over, default=0.0), 1),
        "platform_late_seconds": round(max(0.0, *late), 1) if late else 0.0,
    }


def keep_measured(store: ControlStore, files: TenantFiles, stopping: Event) -> None:
    """Until the platform stops."""
    while not stopping.wait(MEASURE_SECONDS):
        measure_storage(store, files)


def measure_storage(store: ControlStore, files: TenantFiles) -> None:
    """Measures the tables and rejected rows of every tenant that used anything today."""
    today = day_of(time.time_ns() // 1000)
    names = store.rows(select(usage.c.tenant).where(usage.c.day == today))
    sizes = {row.tenant: files.stored_bytes(row.tenant) for row in names}
    with store.write() as connection:
        for tenant, size in sizes.items():
            note_storage(connection, tenant, today, size)
