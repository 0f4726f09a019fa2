"""A folder with sealed files beside plain ones: its readers notice no difference.

A sealed file begins with a few plain words: which data key sealed it, and for whom. Everything else of it, its name
included, is bound to its tenant and table."""

import io
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import orjson

from millrace.lake.sidecar import StagedFile
from millrace.lake.store import Store
from millrace.model.errors import Corrupt
from millrace.seal.cipher import OVERHEAD_BYTES, Seal
from millrace.seal.keyring import Keyring

_MAGIC = b"MRSEAL1\n"
_HEAD = struct.Struct("<8sH")
OWNER_OF_REWRITTEN = "rewritten"


class SealedStore(Store):
    """The folder of one table. Files that `is_secret` names are sealed when they are written: by `seal`, or, if the tenant
    has keys, by the key of the hour. So code that rewrites sealed files need not know of it."""

    def __init__(
        self,
        root: Path,
        keyring: Keyring,
        tenant: str,
        table: str,
        *,
        seal: Seal | None = None,
        is_secret: Callable[[str], bool] = lambda name: True,
        durable: bool = False,
    ) -> None:
        super().__init__(root, durable)
        self._keyring, self._tenant, self._table = keyring, tenant, table
        self._seal = seal
        self._is_secret = is_secret

    def digest(self, data: bytes | memoryview) -> str:
        seal = self._writing_seal()
        return super().digest(data) if seal is None else seal.digest(data)

    def read(self, name: str) -> bytes:
        content = super().read(name)
        if not content.startswith(_MAGIC):
            return content
        return _opened(name, content, self._keyring, self._tenant, self._table)

    def map(self, name: str) -> memoryview:
        return memoryview(self.read(name)) if self.is_sealed(name) else super().map(name)

    def whole(self, name: str) -> str | BinaryIO:
        return self.source(name)

    def source(self, name: str) -> str | BinaryIO:
        return io.BytesIO(self.read(name)) if self.is_sealed(name) else super().source(name)

    def size(self, name: str) -> int:
        """Of the plain content."""
        size = super().size(name)
        with open(self.path(name), "rb") as file:
            head = file.read(_HEAD.size)
        if not head.startswith(_MAGIC):
            return size
        _, length = _HEAD.unpack(head)
        return size - _HEAD.size - int(length) - OVERHEAD_BYTES

    def may_tell(self, name: str) -> bool:
        """Not of what is sealed. Nobody asks the KMS for that."""
        is_sealing = self._seal is not None or self._keyring.keys.has_any(self._tenant)
        return not (is_sealing and self._is_secret(name))

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        return super().put_if_absent(name, self._closed(name, data))

    @contextmanager
    def creating(self, name: str) -> Iterator[BinaryIO]:
        if not self._is_secret(name) or self._writing_seal() is None:
            with super().creating(name) as file:
                yield file
            return
        plain = io.BytesIO()
        yield plain
        with super().creating(name) as file:
            file.write(self._closed(name, plain.getbuffer()))

    def _closed(self, name: str, data: bytes | memoryview) -> bytes | memoryview:
        seal = self._writing_seal() if self._is_secret(name) else None
        if seal is None:
            return data
        words = orjson.dumps({"key": seal.key, "owner": seal.owner})
        return _HEAD.pack(_MAGIC, len(words)) + words + seal.close(data, name)

    def _writing_seal(self) -> Seal | None:
        if self._seal is None and self._keyring.keys.has_any(self._tenant):
            key = self._keyring.of_this_hour(self._tenant)
            self._seal = self._keyring.seal(self._tenant, self._table, key, OWNER_OF_REWRITTEN)
        return self._seal

    def is_sealed(self, name: str) -> bool:
        with open(self.path(name), "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC


def open_part(path: Path, name: str, keyring: Keyring, tenant: str, table: str) -> str | BinaryIO:
    """Opens a file through a link in another folder; `name` is the name that it was sealed under."""
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            return str(path)
        file.seek(0)
        return io.BytesIO(_opened(name, file.read(), keyring, tenant, table))


def unseal(staged: Store, file: StagedFile, table: Store) -> None:
    """Copies a staged file into the table, in plain. Done again it changes nothing, unless the first copy was cut off."""
    for part in file.parts:
        copied = _size(table, part)
        if copied is None:
            table.put_if_absent(part, staged.read(part))
        elif _size(staged, part) in (copied, None):
            table.secure(part)
        else:
            table.write(part, staged.read(part))


def _size(store: Store, name: str) -> int | None:
    try:
        return store.size(name)
    except FileNotFoundError:
        return None


def _opened(name: str, content: bytes, keyring: Keyring, tenant: str, table: str) -> bytes:
    try:
        _, length = _HEAD.unpack_from(content)
        words = orjson.loads(content[_HEAD.size : _HEAD.size + length])
        key, owner = str(words["key"]), str(words["owner"])
    except (struct.error, orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise Corrupt(f"{name} begins like a sealed file and is none.") from error
    return keyring.seal(tenant, table, key, owner).open(memoryview(content)[_HEAD.size + length :], name)
