"""Wrapped data keys of the tenants, and when a tenant's key was last destroyed.

The server and the ingestion managers write data keys, and the server destroys. The workers and couriers of the data plane
read both. If a data key is lost, what it sealed cannot be read. If a mark is lost, a process may use a key that it unwrapped
before for five minutes more."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import orjson

from millrace.atomic import create_file, replace_file
from millrace.exchange.home import Home
from millrace.seal.keyring import Keyring, WrappedKeys
from millrace.seal.kms import open_kms
from millrace.settings import KmsSettings


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """The embedded form of `seal.keyring.WrappedKeys`."""

    home: Home

    def has_any(self, tenant: str) -> bool:
        return self.home.data_keys(tenant).is_dir()

    def has(self, tenant: str, key: str) -> bool:
        return self.home.data_key(tenant, key).exists()

    def read(self, tenant: str, key: str) -> bytes:
        return bytes.fromhex(orjson.loads(self.home.data_key(tenant, key).read_bytes())["wrapped"])

    def create(self, tenant: str, key: str, wrapped: bytes) -> bool:
        return create_file(self.home.data_key(tenant, key), _document(wrapped), durable=True)

    def replace(self, tenant: str, key: str, wrapped: bytes) -> None:
        replace_file(self.home.data_key(tenant, key), _document(wrapped), durable=True)

    def drop(self, tenant: str, key: str) -> None:
        self.home.data_key(tenant, key).unlink(missing_ok=True)

    def names(self, tenant: str) -> Iterator[str]:
        yield from (path.stem for path in sorted(self.home.data_keys(tenant).glob("*/*.json")))

    def mark_destroyed(self, tenant: str) -> None:
        mark = self.home.keys_destroyed(tenant)
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
        # The file system's own clock may be a little behind ours, by which others tell what they know from before.
        os.utime(mark, ns=(time.time_ns(),) * 2)

    def destroyed_at(self, tenant: str) -> float:
        try:
            return self.home.keys_destroyed(tenant).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    @property
    def kms_folder(self) -> Path:
        return self.home.kms


@lru_cache(maxsize=16)
def keyring_of(keys: WrappedKeys, settings: KmsSettings) -> Keyring:
    """One per process and home: what it unwrapped once it need not ask for again."""
    return Keyring(keys, partial(open_kms, settings, keys.kms_folder))


def _document(wrapped: bytes) -> bytes:
    return orjson.dumps({"wrapped": wrapped.hex()})
