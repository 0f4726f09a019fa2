"""Tenant keys in files of this machine, one per tenant, readable by the platform's user alone.

A file lists the versions of the key, each a Tink keyset: the newest wraps, each unwraps what it wrapped."""

import json
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

import tink
from tink import aead, secret_key_access
from tink import json_proto_keyset_format as keyset_format

from millrace.atomic import replace_file
from millrace.model.errors import Corrupt, KeyGone, Unavailable
from millrace.model.names import checked_name

_PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600
_VERSION = struct.Struct(">I")

aead.register()


class LocalKms:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def wrap(self, tenant: str, secret: bytes, context: str, *, is_first: bool = True) -> bytes:
        may_make = is_first or self._mark(tenant).exists()
        if may_make and not self._path(tenant).exists():
            with self._alone():
                if not self._path(tenant).exists():
                    self._write(tenant, [_new_version()])
        versions = self._read(tenant)
        sealed = _cipher(versions[-1]).encrypt(secret, context.encode())
        return _VERSION.pack(len(versions)) + bytes(sealed)

    def unwrap(self, tenant: str, wrapped: bytes, context: str) -> bytes:
        versions = self._read(tenant)
        (version,) = _VERSION.unpack_from(wrapped)
        try:
            return bytes(_cipher(versions[version - 1]).decrypt(wrapped[_VERSION.size :], context.encode()))
        except (tink.TinkError, IndexError) as error:
            raise KeyGone(f"The key of tenant {tenant!r} does not open {context}.") from error

    def rewrap(self, tenant: str, wrapped: bytes, context: str) -> bytes:
        return self.wrap(tenant, self.unwrap(tenant, wrapped, context), context)

    def rotate(self, tenant: str) -> None:
        with self._alone():
            known = self._read(tenant) if self._path(tenant).exists() else []
            self._write(tenant, [*known, _new_version()])

    def destroy(self, tenant: str) -> str:
        with self._alone():
            # Nobody else writes now, so these are copies of keys that killed processes left.
            for left in self._folder.glob(".*.partial"):
                _overwrite(left)
                left.unlink()
            with suppress(FileNotFoundError):
                _overwrite(self._path(tenant))
                self._mark(tenant).touch()
                self._path(tenant).unlink()
        return "now"

    def describe(self, tenant: str) -> dict[str, Any] | None:
        if not self._path(tenant).exists():
            return None
        return {"keeper": "local", "name": self._path(tenant).name, "version": len(self._read(tenant))}

    def _read(self, tenant: str) -> list[str]:
        path = self._path(tenant)
        try:
            versions: list[str] = json.loads(path.read_bytes())["versions"]
        except FileNotFoundError as error:
            if self._mark(tenant).exists():
                raise KeyGone(f"The key of tenant {tenant!r} was destroyed.") from error
            # A folder that is not mounted looks like one without keys.
            raise Unavailable(
                f"The key file of tenant {tenant!r} is not in {self._folder}.",
                remedy="Bring it back from a backup, or mount MILLRACE_KMS__FOLDER here.",
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"{path} is no key file.", remedy="Bring it back from a backup.") from error
        return versions

    def _write(self, tenant: str, versions: list[str]) -> None:
        replace_file(self._path(tenant), json.dumps({"versions": versions}), durable=True, mode=_PRIVATE_FILE)

    def _mark(self, tenant: str) -> Path:
        """Exists once a key of the tenant was destroyed."""
        return self._folder / f"{checked_name('tenant', tenant)}.gone"

    def _path(self, tenant: str) -> Path:
        return self._folder / f"{checked_name('tenant', tenant)}.json"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Only one thread of all processes is inside."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=_PRIVATE_FOLDER)
        with self._lock, (self._folder / ".lock").open("w") as held:
            flock(held, LOCK_EX)
            yield


def _overwrite(path: Path) -> None:
    """The disk may keep old blocks, which we cannot reach; the bytes of the file we can overwrite."""
    with path.open("r+b") as file:
        file.write(b"\0" * path.stat().st_size)
        os.fsync(file.fileno())


def _new_version() -> str:
    made = tink.new_keyset_handle(aead.aead_key_templates.AES256_GCM)
    return str(keyset_format.serialize(made, secret_key_access.TOKEN))


def _cipher(version: str) -> aead.Aead:
    try:
        return keyset_format.parse(version, secret_key_access.TOKEN).primitive(aead.Aead)
    except tink.TinkError as error:
        raise Corrupt("A version of the key is no keyset.", remedy="Bring its file back from a backup.") from error
