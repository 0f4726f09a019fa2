"""Keys of streamed rows in the table log: rows travel in their op, and ops are kept for ever, but rows are not.

The server seals the rows of an append by its tenant's key of the day; the controller opens them when it applies the op. Some
days later, or when the tenant is erased, the key is deleted, and nobody can read the rows in the log any more. If a key is
lost, rows that were not applied yet cannot be read."""

import os
import secrets
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from millrace.atomic import create_file
from millrace.exchange.home import Home
from millrace.seal.cipher import Seal

SECRET_BYTES = 32
# What of an append is sealed: all of it is one part.
LOG_PART = "log"
_DAY, _DAY_LENGTH = "%Y%m%d", len("20260101")
_PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class LogKey:
    tenant: str
    name: str

    def is_before(self, moment: datetime) -> bool:
        """Whether its day is an earlier one."""
        return self.name[:_DAY_LENGTH] < moment.strftime(_DAY)


@dataclass(frozen=True, slots=True)
class LogKeys:
    home: Home

    def known_seal(self, tenant: str, table: str, owner: str) -> Seal | None:
        """By the key of today, if this process has made it and it still exists: an erased tenant's keys are gone, also for
        one that is declared again under its name. Reads nothing from the disk."""
        key, secret = _today.get((self.home, tenant), ("", b""))
        if not key.startswith(datetime.now(UTC).strftime(_DAY)) or not os.path.exists(self.home.log_key(tenant, key)):
            return None
        return Seal(secret, key, tenant, table, owner)

    def seal(self, tenant: str, table: str, owner: str) -> Seal:
        """By a key of today, which is made if there is none. Each process makes its own."""
        with _lock:
            known = self.known_seal(tenant, table, owner)
            if known is not None:
                return known
            key = f"{datetime.now(UTC).strftime(_DAY)}_{secrets.token_hex(4)}"
            secret = secrets.token_bytes(SECRET_BYTES)
            create_file(self.home.log_key(tenant, key), secret, durable=True, mode=_PRIVATE)
            _today[self.home, tenant] = key, secret
            return Seal(secret, key, tenant, table, owner)

    def opening(self, tenant: str, table: str, owner: str, key: str) -> Seal | None:
        """None if the key is gone."""
        try:
            return Seal(_secret(self.home.log_key(tenant, key)), key, tenant, table, owner)
        except FileNotFoundError:
            return None

    def before(self, moment: datetime) -> list[LogKey]:
        """Keys of earlier days."""
        found = (LogKey(path.parent.name, path.name) for path in self.home.log_keys.glob("*/[0-9]*"))
        return [key for key in found if key.is_before(moment)]

    def forget(self, keys: Iterable[LogKey]) -> None:
        for key in keys:
            self.home.log_key(key.tenant, key.name).unlink(missing_ok=True)
        drop_remembered()


def drop_remembered() -> None:
    """Secrets of keys that this process has read; those that still exist are read again."""
    _secret.cache_clear()


# Of this process, by home and tenant: a mailbox itself is a value that is sent to workers.
_today: dict[tuple[Home, str], tuple[str, bytes]] = {}
_lock = threading.Lock()


@lru_cache(maxsize=1 << 14)
def _secret(path: Path) -> bytes:
    return path.read_bytes()
