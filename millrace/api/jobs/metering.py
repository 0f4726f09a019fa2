"""Measures, once in a while, what the tables of tenants take on disk."""

import time

from sqlalchemy import select

from millrace.exchange.tenant_files import TenantFiles
from millrace.model.usage import day_of
from millrace.store.engine import ControlStore
from millrace.store.tables import usage
from millrace.store.usage import note_storage


def measure_storage(store: ControlStore, files: TenantFiles) -> None:
    """Measures the tables and rejected rows of every tenant that used anything today."""
    today = day_of(time.time_ns() // 1000)
    names = store.rows(select(usage.c.tenant).where(usage.c.day == today))
    sizes = {row.tenant: files.stored_bytes(row.tenant) for row in names}
    with store.write() as connection:
        for tenant, size in sizes.items():
            note_storage(connection, tenant, today, size)
