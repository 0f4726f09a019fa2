"""Seals rows on their way through the server, for tenants whose agreement asks for encryption."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from millrace.api.bookkeeping import surely
from millrace.auth.quotas import Quotas
from millrace.exchange.mailboxes import Exchange
from millrace.lake.store import Store
from millrace.lake.vacuum import discard_files
from millrace.model.errors import Clash, KeyGone, Refused
from millrace.model.imports import Import
from millrace.seal.cipher import Seal
from millrace.settings import KmsSettings
from millrace.wire.envelope import checksum, pack_chunk, unpack_stamp

ASKING_AT_ONCE = 8
T = TypeVar("T")


class Sealing:
    """Methods that are not async may call the KMS over the network: do not call them in the event loop."""

    def __init__(self, exchange: Exchange, kms: KmsSettings, agreements: Quotas) -> None:
        self._places = exchange.places
        self._agreements = agreements
        self._log_keys = exchange.log_keys
        self.keyring = exchange.keyring(kms)
        self._asking = ThreadPoolExecutor(ASKING_AT_ONCE, "keys")

    def is_wanted(self, tenant: str) -> bool:
        return self._agreements.agreement(tenant).encryption

    @asynccontextmanager
    async def asked_for(self, tenant: str, import_id: str) -> AsyncIterator[None]:
        """Before the import is admitted it gets a data key, if that is agreed now; one that is refused needs none. From then
        on the key decides: an import is sealed as a whole or not at all. Only the controller refuses within the block: after
        any other failure the import may still be admitted, and keeps its key."""
        await self._agreements.prepare(tenant)
        if not self.is_wanted(tenant):
            yield
            return
        await self._apart(self.keyring.new, tenant, import_id)
        try:
            yield
        except Refused:
            await self.drop_unused(tenant, import_id)
            raise

    async def drop_unused(self, tenant: str, import_id: str) -> None:
        """The data key of an import that was not admitted."""
        await surely(self.keyring.keys.drop, tenant, import_id)

    async def seal_of(self, imp: Import) -> Seal | None:
        return await self._apart(self.of_import, imp) if await surely(self._has_key, imp) else None

    def of_import(self, imp: Import) -> Seal | None:
        return self.keyring.seal(imp.tenant, imp.table, imp.id, imp.id) if self._has_key(imp) else None

    def _has_key(self, imp: Import) -> bool:
        """Refuses an import that has none although its tenant wants encryption: its rows would go out in plain."""
        has_key = self.keyring.keys.has(imp.tenant, imp.id)
        if not has_key and self.is_wanted(imp.tenant):
            raise Clash(
                f"{imp.tenant} wants encryption, and import {imp.id} has no data key.",
                remedy="Send the file again as a new import.",
                code="no_data_key",
            )
        return has_key

    async def seal_of_append(self, tenant: str, table: str, import_id: str) -> Seal | None:
        """Appends are many, so they share one data key per hour. Each append derives its own key from it."""
        await self._agreements.prepare(tenant)
        if not self.is_wanted(tenant):
            return None
        return await self._apart(self._of_append, tenant, table, import_id)

    async def log_seal(self, tenant: str, table: str, import_id: str) -> Seal:
        """For rows in the table log, of tenants without encryption."""
        known = self._log_keys.known_seal(tenant, table, import_id)
        # Not in the threads that ask the KMS: a slow one would delay tenants without encryption.
        return known if known is not None else await asyncio.to_thread(self._log_keys.seal, tenant, table, import_id)

    def _of_append(self, tenant: str, table: str, import_id: str) -> Seal:
        return self.keyring.seal(tenant, table, self.keyring.of_this_hour(tenant), import_id)

    async def _apart(self, work: Callable[..., T], *given: Any) -> T:
        """In threads of their own, so that a slow KMS delays nobody else."""
        return await asyncio.get_running_loop().run_in_executor(self._asking, work, *given)

    def discard_errors(self, tenant: str) -> None:
        """Deletes rejected rows that were sealed: without the key nobody can read them."""
        for table in self._places.error_tables(tenant):
            store = self._places.error_store(self.keyring, tenant, table)
            discard_files(store, store.is_sealed)

    def refuse_destroyed(self, document: Mapping[str, Any]) -> None:
        """Raises if the import has rejected rows that a destroyed key sealed. Called when none were found."""
        began = datetime.fromisoformat(document["started_at"]).timestamp() if document["started_at"] else 0.0
        if document["rows"]["rejected"] and began < self.keyring.keys.destroyed_at(document["tenant"]):
            raise KeyGone(
                f"The rejected rows of {document['id']} were sealed by a key that has been destroyed.",
                remedy="Send the file again.",
            )

    def opened(self, tenant: str, table: str, record: bytes) -> bytes:
        """A record of raw-input without its seal."""
        header, payload = unpack_stamp(record)
        if header is None or header.key is None:
            return record
        seal = self.keyring.seal(tenant, table, header.key, header.import_id)
        plain = seal.open(payload, str(header.number))
        return pack_chunk(replace(header, key=None, checksum=checksum(plain)), plain)

    def errors(self, tenant: str, table: str) -> Store:
        return self._places.error_store(self.keyring, tenant, table)
