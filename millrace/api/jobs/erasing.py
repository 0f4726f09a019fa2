"""Erases a tenant everywhere: its rows in every sink that answers, its part of the store, its files. Writes a receipt.

Every step can be repeated. After a crash, the next request goes on where the erasure stopped."""

import asyncio
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Select, delete, select, update

from millrace.api.jobs.receipts import DEFINITIONS_DAYS, emptied, expiring, remaining
from millrace.api.op_log import OpLog
from millrace.api.sealing import Sealing
from millrace.auth.quotas import Quotas
from millrace.exchange.mailboxes import Exchange
from millrace.lake.removal import delete_table
from millrace.model.errors import Clash, MillraceError, Missing, Unavailable
from millrace.model.imports import STOPPING, TERMINAL
from millrace.model.moments import iso
from millrace.model.ops.imports import CancelImport
from millrace.model.ops.tables import PurgeTable, TruncateTable, WaiveSink
from millrace.model.ops.tenants import EraseTenant
from millrace.model.queues import OWN_SINKS
from millrace.model.sinks import DELTA_KIND, REMOTE_DELTA_KIND
from millrace.model.table import Definition
from millrace.sink.context import SinkContext
from millrace.sink.delta.error_copies import delete_copies
from millrace.sink.delta.places import remote_store
from millrace.sink.delta.settings import DeltaRemoteSettings
from millrace.store import tables as t
from millrace.store.engine import ControlStore, upsert
from millrace.store.erasing import fingerprints_of, forget_queues, is_known, rows_of
from millrace.store.tables import departures, erasures

LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Eraser:
    store: ControlStore
    op_log: OpLog
    quotas: Quotas
    sealing: Sealing
    exchange: Exchange
    sink_context: SinkContext
    ops_kept_days: int | None

    async def erase(self, tenant: str, *, now: bool, wait: float) -> dict[str, Any]:
        """1. What is under way is stopped. 2. Every table is emptied in every sink; a sink that does not answer in time is
        given up, and the receipt says so. 3. The store forgets the tenant, by an op of the log. 4. Files go."""
        if not await asyncio.to_thread(_is_emptied, self.store, tenant):
            deleted_us = await asyncio.to_thread(_checked_departure, self.store, tenant, now)
            await self._stop_imports(tenant, wait)  # 1
            left_in = await self._empty_tables(tenant, wait)  # 2
            await asyncio.to_thread(_begin, self.store, tenant, deleted_us, left_in)
        if await asyncio.to_thread(_is_there, self.store, tenant):
            await self.op_log.applied(EraseTenant(tenant, now=now))  # 3
            self.quotas.forget(tenant)
        return await asyncio.to_thread(self._finish, tenant)  # 4

    async def _stop_imports(self, tenant: str, wait: float) -> None:
        for row in await asyncio.to_thread(_open, self.store, tenant):
            if row.state != STOPPING:
                with suppress(MillraceError):
                    await self.op_log.applied(CancelImport(tenant, row.id))
        await self._until_over(tenant, wait)

    async def _empty_tables(self, tenant: str, wait: float) -> list[dict[str, str]]:
        for table in await asyncio.to_thread(self.store.rows, _tables(tenant)):
            if table.dropped_us is None:
                await self.op_log.applied(TruncateTable(tenant, table.name))
            elif not table.is_purged:
                await self.op_log.applied(PurgeTable(tenant, table.name, dropped_us=table.dropped_us))
        if await self._until_over(tenant, wait):
            return []
        late = await asyncio.to_thread(_late_sinks, self.store, tenant)
        own = await asyncio.to_thread(_own_sinks, self.store, tenant)
        for name, sink in (*late, *own):
            await self.op_log.applied(WaiveSink(tenant, name, sink=sink, is_draining=True))
        if not await self._until_over(tenant, wait):
            raise Unavailable(
                f"Not everything of {tenant!r} is emptied yet.",
                remedy="Ask again; `millrace doctor` tells what is away.",
            )
        return [{"table": table, "sink": sink} for table, sink in late]

    async def _until_over(self, tenant: str, wait: float) -> bool:
        ends = time.monotonic() + wait
        while await asyncio.to_thread(_open, self.store, tenant):
            if time.monotonic() > ends:
                return False
            await asyncio.sleep(LOOK_SECONDS)
        return True

    def _finish(self, tenant: str) -> dict[str, Any]:
        begun = _begun(self.store, tenant)
        if begun is None:
            return receipt_of(self.store, tenant)
        known = dict(begun.receipt)
        # The key goes first, so that nobody can read what is copied from now on.
        keys = self._destroy_key(tenant)
        left = self._delete_error_copies(tenant, known["sinks"])
        deleted, kept = self._delete_remote_tables(tenant, known)
        folders = [{"what": name, "bytes": size} for name, size in self.exchange.tenant_files.remove(tenant)]
        receipt = {
            "tenant": tenant,
            "erased_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "gone": {
                "store_rows": known["rows"],
                "folders": folders,
                "emptied_sinks": emptied(known["sinks"], known["not_reached"]),
                "remote_files": deleted,
                **keys,
            },
            "expires": expiring(self.ops_kept_days),
            "remains": left + kept + remaining(self.ops_kept_days, known["sinks"], known["not_reached"]),
        }
        with self.store.write() as connection:
            # A token or a hook that was made while the op was on its way.
            connection.execute(delete(t.tokens).where(t.tokens.c.tenant == tenant))
            row = {"tenant": tenant, "begun_us": begun.begun_us, "is_done": True, "receipt": receipt}
            upsert(connection, erasures, {**row, "definitions": begun.definitions})
        return receipt

    def _delete_error_copies(self, tenant: str, tables: list[dict[str, Any]]) -> list[str]:
        """What is left of them."""
        left = []
        for table in (known["table"] for known in tables):
            try:
                delete_copies(self.sink_context, tenant, table)
            except (MillraceError, OSError, ValueError) as error:
                left.append(
                    f"{table}: copies of its rejected rows, in a place that does not answer ({error}): delete them."
                )
        return left

    def _delete_remote_tables(self, tenant: str, known: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
        """What was deleted, and what could not be. An emptied table still has files of earlier versions in its bucket, which
        nobody would tidy up any more."""
        late = {(one["table"], one["sink"]) for one in known["not_reached"]}
        deleted, kept = [], []
        for table, sink in ((one["table"], sink) for one in known["sinks"] for sink in one["sinks"]):
            if sink["kind"] != REMOTE_DELTA_KIND or (table, sink["name"]) in late:
                continue
            try:
                # An erasure that an earlier version began recorded no settings.
                place = DeltaRemoteSettings.model_validate(sink.get("settings"))
                files = delete_table(remote_store(self.sink_context, place, tenant, table))
                deleted.append({"table": table, "sink": sink["name"], "files": files})
            except (MillraceError, OSError, ValueError) as error:
                why = "its settings are not known" if isinstance(error, ValueError) else str(error)
                kept.append(
                    f"{table}: files of earlier versions in sink {sink['name']!r}, which cannot be deleted ({why}): "
                    "delete them there."
                )
        return deleted, kept

    def _destroy_key(self, tenant: str) -> dict[str, Any]:
        """Nobody can read any more what the key sealed, in Kafka as well."""
        keyring = self.sealing.keyring
        known = keyring.kms.describe(tenant)
        if known is None:
            return {}
        certain = keyring.destroy(tenant)
        return {"encryption_key": {**known, "destroyed": certain}}


def receipt_of(store: ControlStore, tenant: str) -> dict[str, Any]:
    row = store.first(select(erasures).where(erasures.c.tenant == tenant, erasures.c.is_done))
    if row is None:
        raise Missing(f"No tenant {tenant!r} was erased.", code="no_erasure")
    return dict(row.receipt)


def _is_emptied(store: ControlStore, tenant: str) -> bool:
    """Whether an erasure that broke off has emptied the tables. An earlier departure does not count: rows may have come."""
    begun = _begun(store, tenant)
    if begun is None or not _is_there(store, tenant):
        return begun is not None
    gone = _departure(store, tenant)
    return gone is not None and begun.receipt.get("deleted_us") == gone.deleted_us


def _begun(store: ControlStore, tenant: str) -> Any:
    """An erasure that did not get to its end."""
    return store.first(select(erasures).where(erasures.c.tenant == tenant, erasures.c.is_done.is_(False)))


def _is_there(store: ControlStore, tenant: str) -> bool:
    with store.read() as connection:
        return is_known(connection, tenant)


def _departure(store: ControlStore, tenant: str) -> Any:
    return store.first(select(departures).where(departures.c.tenant == tenant))


def _checked_departure(store: ControlStore, tenant: str, now: bool) -> int:
    """When the tenant was deleted. Refuses here, before anything is emptied, what the log would refuse at the end."""
    if not _is_there(store, tenant):
        raise Missing(f"There is no tenant {tenant!r}.", code="no_tenant")
    gone = _departure(store, tenant)
    if gone is None:
        raise Clash(f"Tenant {tenant!r} was not deleted.", remedy="Delete it first.", code="not_deleted")
    if not now and time.time_ns() // 1000 < gone.erase_us:
        message = f"Tenant {tenant!r} can be restored until {iso(gone.erase_us)}."
        raise Clash(message, remedy="Wait until then, or ask to erase it now.", code="grace_not_over")
    return int(gone.deleted_us)


def _open(store: ControlStore, tenant: str) -> list[Any]:
    return store.rows(select(t.imports).where(t.imports.c.tenant == tenant, t.imports.c.state.not_in(TERMINAL)))


def _tables(tenant: str) -> Select[Any]:
    return select(t.tables).where(t.tables.c.tenant == tenant)


def _own_sinks(store: ControlStore, tenant: str) -> list[tuple[str, str]]:
    """The platform's own, of tables that could not be emptied: their files are deleted in any case."""
    waiting = {row.table_name for row in _open(store, tenant)}
    return [(table, sink) for table in sorted(waiting) for sink in OWN_SINKS]


def _late_sinks(store: ControlStore, tenant: str) -> list[tuple[str, str]]:
    """Remote sinks that have not emptied their tables."""
    own = {
        (table.name, target.name)
        for table in store.rows(_tables(tenant))
        for target in Definition.from_json(table.definition.encode()).table.targets
        if target.kind == DELTA_KIND
    }
    late = {
        (row.table_name, sink)
        for row in _open(store, tenant)
        for sink in row.sinks
        if row.durable.get(sink, 0) < row.counts["chunks"] and (row.table_name, sink) not in own
    }
    return sorted(late)


def _begin(store: ControlStore, tenant: str, deleted_us: int, left_in: list[dict[str, str]]) -> None:
    """Records the erasure, so that it is finished whatever happens to this process."""
    with store.write() as connection:
        tables = [Definition.from_json(row.definition.encode()).table for row in connection.execute(_tables(tenant))]
        # The targets' settings hold references to secrets, and are in no receipt.
        sinks = [{"table": table.name, "sinks": [asdict(one) for one in table.targets]} for table in tables]
        known = {"deleted_us": deleted_us, "rows": rows_of(connection, tenant), "sinks": sinks, "not_reached": left_in}
        row = {"tenant": tenant, "begun_us": time.time_ns() // 1000, "is_done": False, "receipt": known}
        upsert(connection, erasures, {**row, "definitions": fingerprints_of(connection, tenant)})


def clear_erased(store: ControlStore, exchange: Exchange, now_us: int) -> None:
    """Deletes what an erasure left for batches that may be repeated: definitions, and folders that a batch made again."""
    long_ago = (erasures.c.is_done, erasures.c.begun_us < now_us - DEFINITIONS_DAYS * 86_400_000_000)
    for tenant in [row.tenant for row in store.rows(select(erasures).where(*long_ago)) if row.definitions]:
        # Definitions are published under the same lock, so no name can come back in between.
        with store.write() as connection:
            row = connection.execute(select(erasures).where(*long_ago, erasures.c.tenant == tenant)).first()
            if row is not None:
                _clear(connection, exchange, tenant, row.definitions)
                connection.execute(update(erasures).where(erasures.c.tenant == tenant).values(definitions=[]))


def _clear(connection: Connection, exchange: Exchange, tenant: str, definitions: list[str]) -> None:
    """A tenant that was declared again under the same name keeps its folders and definitions."""
    for fingerprint in set(definitions).difference(fingerprints_of(connection, tenant)):
        exchange.definitions.forget(fingerprint)
    if not is_known(connection, tenant):
        forget_queues(connection, tenant)
        with suppress(OSError):
            exchange.tenant_files.remove(tenant)
