"""Whether a tenant may send more rows into a table now: its quotas, and what its sinks keep waiting."""

import asyncio
from typing import Any

from millrace.api.jobs.sink_watch import SinkWatch
from millrace.auth.quotas import Quotas
from millrace.model.errors import Refused
from millrace.model.ops.base import TableOp
from millrace.model.ops.imports import BeginImport
from millrace.model.ops.rows import ReplayErrors
from millrace.store.engine import ControlStore
from millrace.store.records import find_by_key

# Ops that open an import which stays open for a while. Appends end by themselves in a moment.
COUNTED = (BeginImport, ReplayErrors)


class Admission:
    def __init__(self, store: ControlStore, quotas: Quotas, sinks: SinkWatch) -> None:
        self._store = store
        self._quotas = quotas
        self._sinks = sinks

    async def refuse_rows(self, op: TableOp[Any]) -> None:
        """Raises what is in the way of an op that brings rows. An op that repeats a known request brings none."""
        await self._quotas.prepare(op.tenant)
        try:
            self._quotas.refuse_rows(op.tenant)
            self._sinks.refuse_if_full(op.tenant, op.table)
            if isinstance(op, COUNTED):
                self._quotas.refuse_import(op.tenant)
        except Refused:
            if not op.request_key or not await asyncio.to_thread(self._is_known, op.tenant, op.request_key):
                raise

    def _is_known(self, tenant: str, key: str) -> bool:
        with self._store.read() as connection:
            return find_by_key(connection, tenant, key) is not None
