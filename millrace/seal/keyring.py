"""Data keys: one per uploaded file, one an hour for what is streamed; each in a small file, wrapped by its tenant's key.

Sealed bytes name their data key. A new tenant key wraps the data keys anew and touches nothing that they sealed."""

import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from millrace.model.errors import KeyGone
from millrace.model.names import Home
from millrace.seal.kms import Kms, open_kms
from millrace.settings import KmsSettings

if TYPE_CHECKING:
    from millrace.seal.cipher import Seal

SECRET_BYTES = 32
MOST_KNOWN = 4096
# A key that was destroyed is forgotten everywhere so soon.
KNOWN_SECONDS = 300.0


class Keyring:
    """Of one home; used from any thread."""

    def __init__(self, home: Home, kms: Kms) -> None:
        self._home = home
        self.kms = kms
        self._known: OrderedDict[tuple[str, str], tuple[float, bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def has(self, tenant: str, key: str) -> bool:
        return self._home.data_key(tenant, key).exists()

    def has_any(self, tenant: str) -> bool:
        return self._home.data_keys(tenant).is_dir()

    def new(self, tenant: str, key: str) -> str:
        """The key itself if it is there already."""
        path = self._home.data_key(tenant, key)
        if not path.exists():
            secret = secrets.token_bytes(SECRET_BYTES)
            if _put_if_absent(path, self.kms.wrap(tenant, secret, _context(tenant, key))):
                self._remember(tenant, key, secret)
        return key

    def of_this_hour(self, tenant: str) -> str:
        """The key of what comes without a file of its own."""
        return self.new(tenant, f"hour_{datetime.now(UTC):%Y%m%d%H}")

    def seal(self, tenant: str, table: str, key: str, owner: str) -> "Seal":
        # Only those whose tenants have something to seal pay for the library.
        from millrace.seal.cipher import Seal  # noqa: PLC0415

        return Seal(self._secret(tenant, key), key, tenant, table, owner)

    def rewrap(self, tenant: str) -> int:
        """Wraps every data key of the tenant by the newest version of its key; how many there are."""
        count = 0
        for path in self._paths(tenant):
            context = _context(tenant, path.stem)
            _replace(path, self.kms.rewrap(tenant, _wrapped(path), context))
            count += 1
        return count

    def count(self, tenant: str) -> int:
        return sum(1 for _ in self._paths(tenant))

    def forget(self, tenant: str) -> None:
        """After its tenant key was destroyed."""
        with self._lock:
            for known in [known for known in self._known if known[0] == tenant]:
                del self._known[known]

    def _secret(self, tenant: str, key: str) -> bytes:
        with self._lock:
            until, secret = self._known.get((tenant, key), (0.0, b""))
        if time.monotonic() < until:
            return secret
        path = self._home.data_key(tenant, key)
        try:
            secret = self.kms.unwrap(tenant, _wrapped(path), _context(tenant, key))
        except FileNotFoundError as error:
            raise KeyGone(f"Tenant {tenant!r} has no data key {key}.") from error
        self._remember(tenant, key, secret)
        return secret

    def _remember(self, tenant: str, key: str, secret: bytes) -> None:
        with self._lock:
            self._known[tenant, key] = time.monotonic() + KNOWN_SECONDS, secret
            self._known.move_to_end((tenant, key))
            if len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)

    def _paths(self, tenant: str) -> Iterator[Path]:
        yield from sorted(self._home.data_keys(tenant).glob("*/*.json"))


@lru_cache(maxsize=16)
def keyring_of(home: str, settings: KmsSettings) -> Keyring:
    """One per process and home: what it unwrapped once it need not ask for again."""
    known = Home(Path(home))
    return Keyring(known, open_kms(settings, known))


def _context(tenant: str, key: str) -> str:
    return f"millrace/{tenant}/{key}"


def _wrapped(path: Path) -> bytes:
    return bytes.fromhex(orjson.loads(path.read_bytes())["wrapped"])


def _put_if_absent(path: Path, wrapped: bytes) -> bool:
    """Of many callers exactly one gets True."""
    unfinished = _unfinished(path, wrapped)
    try:
        os.link(unfinished, path)
    except FileExistsError:
        return False
    finally:
        unfinished.unlink()
    return True


def _replace(path: Path, wrapped: bytes) -> None:
    _unfinished(path, wrapped).replace(path)


def _unfinished(path: Path, wrapped: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.parent / f".{path.name}.{secrets.token_hex(6)}"
    with unfinished.open("wb") as file:
        file.write(orjson.dumps({"wrapped": wrapped.hex()}))
        file.flush()
        os.fsync(file.fileno())
    return unfinished
