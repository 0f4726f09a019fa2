"""Data keys: one per uploaded file, one an hour for what is streamed; each is kept wrapped by its tenant's key.

Sealed bytes name their data key. A new tenant key wraps the data keys anew and touches nothing that they sealed."""

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Protocol

from millrace.model.errors import KeyGone
from millrace.seal.cipher import Seal
from millrace.seal.kms import Kms

SECRET_BYTES = 32
MOST_KNOWN = 4096
KNOWN_SECONDS = 300.0
# A key that another machine has just written may become visible this late.
SEEN_SECONDS, LOOK_SECONDS = 5.0, 0.2


@dataclass(frozen=True, slots=True)
class _KnownSecret:
    secret: bytes
    since: float
    until: float


class WrappedKeys(Protocol):
    """Where wrapped data keys are kept, by tenant and name."""

    def __hash__(self) -> int: ...

    @property
    def kms_folder(self) -> Path:
        """For the tenants' own keys, if the operator keeps them on this machine and names no other folder."""

    def has_any(self, tenant: str) -> bool: ...

    def has(self, tenant: str, key: str) -> bool: ...

    def read(self, tenant: str, key: str) -> bytes:
        """Raises FileNotFoundError where there is none."""

    def create(self, tenant: str, key: str, wrapped: bytes) -> bool:
        """Of many callers exactly one gets True."""

    def replace(self, tenant: str, key: str, wrapped: bytes) -> None: ...

    def drop(self, tenant: str, key: str) -> None:
        """Only for a key that has sealed nothing."""

    def names(self, tenant: str) -> Iterator[str]: ...

    def mark_destroyed(self, tenant: str) -> None:
        """The tenant's key is destroyed: what any process unwrapped before this moment counts no more."""

    def destroyed_at(self, tenant: str) -> float:
        """When the tenant's key was last destroyed; 0 if never."""


class Keyring:
    """Used from any thread. It remembers an unwrapped key for a while, until the tenant's key is destroyed, in whichever
    process that happens."""

    def __init__(self, keys: WrappedKeys, keeper: Callable[[], Kms]) -> None:
        self.keys = keys
        self._keeper = keeper
        self._known: OrderedDict[tuple[str, str], _KnownSecret] = OrderedDict()
        self._hours: dict[str, str] = {}
        self._lock = threading.Lock()

    @cached_property
    def kms(self) -> Kms:
        """Opened when a key is first needed: each keeper imports a library, and most processes need none."""
        return self._keeper()

    def new(self, tenant: str, key: str) -> str:
        """Makes the key unless it exists. Returns its name."""
        if not self.keys.has(tenant, key):
            secret, is_first = secrets.token_bytes(SECRET_BYTES), not self.keys.has_any(tenant)
            wrapped = self.kms.wrap(tenant, secret, _context(tenant, key), is_first=is_first)
            if self.keys.create(tenant, key, wrapped):
                self._remember(tenant, key, secret)
        return key

    def of_this_hour(self, tenant: str) -> str:
        """The name of a key for data that comes without a file. Each process has its own."""
        hour = f"hour_{datetime.now(UTC):%Y%m%d%H}_"
        with self._lock:
            known = self._hours.get(tenant, "")
        if known.startswith(hour):
            with suppress(KeyGone):
                self._secret(tenant, known)
                return known
        made = self.new(tenant, hour + secrets.token_hex(4))
        with self._lock:
            self._hours[tenant] = made
        return made

    def seal(self, tenant: str, table: str, key: str, owner: str) -> Seal:
        return Seal(self._secret(tenant, key), key, tenant, table, owner)

    def ask(self, tenant: str, key: str) -> None:
        """Unwraps the key, whatever is remembered of it: raises Unavailable if the keeper does not answer."""
        self._remember(tenant, key, self.kms.unwrap(tenant, self._found(tenant, key), _context(tenant, key)))

    def rewrap(self, tenant: str) -> int:
        """Wraps the tenant's data keys by the newest version of its key. Returns how many; those of a destroyed key stay."""
        count = 0
        for key in self.keys.names(tenant):
            with suppress(KeyGone):
                wrapped = self.kms.rewrap(tenant, self.keys.read(tenant, key), _context(tenant, key))
                self.keys.replace(tenant, key, wrapped)
                count += 1
        return count

    def destroy(self, tenant: str) -> str:
        """Makes everything that the tenant's keys sealed unreadable. Returns when that is certain."""
        certain = self.kms.destroy(tenant)
        self.keys.mark_destroyed(tenant)
        return certain

    def _secret(self, tenant: str, key: str) -> bytes:
        with self._lock:
            known = self._known.get((tenant, key))
        if known is not None and time.monotonic() < known.until and known.since > self.keys.destroyed_at(tenant):
            return known.secret
        secret = self.kms.unwrap(tenant, self._found(tenant, key), _context(tenant, key))
        self._remember(tenant, key, secret)
        return secret

    def _found(self, tenant: str, key: str) -> bytes:
        until = time.monotonic() + SEEN_SECONDS
        while True:
            try:
                return self.keys.read(tenant, key)
            except FileNotFoundError as error:
                if not self.keys.has_any(tenant) or time.monotonic() > until:
                    raise KeyGone(f"Tenant {tenant!r} has no data key {key}.") from error
                time.sleep(LOOK_SECONDS)

    def _remember(self, tenant: str, key: str, secret: bytes) -> None:
        with self._lock:
            self._known[tenant, key] = _KnownSecret(secret, time.time(), time.monotonic() + KNOWN_SECONDS)
            self._known.move_to_end((tenant, key))
            if len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)


def _context(tenant: str, key: str) -> str:
    return f"millrace/{tenant}/{key}"
