"""What is sealed on its way through the server, for tenants whose agreement asks for encryption."""

from dataclasses import replace
from typing import TYPE_CHECKING

from millrace.api.quotas import Quotas
from millrace.lake.store import Store
from millrace.model.imports import Import
from millrace.model.names import Home
from millrace.seal.keyring import keyring_of
from millrace.seal.places import error_store
from millrace.settings import KmsSettings
from millrace.wire.envelope import checksum, pack_chunk, unpack_stamp

if TYPE_CHECKING:
    from millrace.seal.cipher import Seal


class Sealing:
    """Used from any thread. May ask the keeper of the tenants' keys, wherever that is: not for the event loop."""

    def __init__(self, home: Home, kms: KmsSettings, agreements: Quotas) -> None:
        self._home = home
        self._agreements = agreements
        self.keyring = keyring_of(str(home.root), kms)

    def is_wanted(self, tenant: str) -> bool:
        return self._agreements.agreement(tenant).encryption

    def of_import(self, imp: Import) -> "Seal | None":
        """A data key of its own; an import that has one keeps it, whatever was agreed meanwhile."""
        if not (self.is_wanted(imp.tenant) or self.keyring.has(imp.tenant, imp.id)):
            return None
        key = self.keyring.new(imp.tenant, imp.id)
        return self.keyring.seal(imp.tenant, imp.table, key, imp.id)

    def of_append(self, tenant: str, table: str, import_id: str) -> "Seal":
        """By the data key of the hour: appends are many. Each has a key of its own that follows from it."""
        return self.keyring.seal(tenant, table, self.keyring.of_this_hour(tenant), import_id)

    def opened(self, tenant: str, table: str, record: bytes) -> bytes:
        """A record of raw-input as it would be if it had not been sealed."""
        header, payload = unpack_stamp(record)
        if header is None or header.key is None:
            return record
        seal = self.keyring.seal(tenant, table, header.key, header.import_id)
        plain = seal.open(payload, str(header.number))
        return pack_chunk(replace(header, key=None, checksum=checksum(plain)), plain)

    def errors(self, tenant: str, table: str) -> Store:
        return error_store(self._home, self.keyring, tenant, table)
