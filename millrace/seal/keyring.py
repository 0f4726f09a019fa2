"""Data keys: one per uploaded file, one an hour for what is streamed; each in a small file, wrapped by its tenant's key.

Sealed bytes name their data key. A new tenant key wraps the data keys anew and touches nothing that they sealed."""

import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache, partial
from pathlib import Path

import orjson

from millrace.model.errors import KeyGone
from millrace.model.names import Home
from millrace.seal.cipher import Seal
from millrace.seal.kms import Kms, open_kms
from millrace.settings import KmsSettings

SECRET_BYTES = 32
MOST_KNOWN = 4096
KNOWN_SECONDS = 300.0
# A file that another machine has just written may be seen so late.
SEEN_SECONDS, LOOK_SECONDS = 5.0, 0.2


@dataclass(frozen=True, slots=True)
class _Known:
    secret: bytes
    since: float
    until: float


class Keyring:
    """Of one home; used from any thread. What was unwrapped once is known for a while, unless the tenant's key is destroyed:
    that holds in every process at once."""

    def __init__(self, home: Home, keeper: Callable[[], Kms]) -> None:
        self._home = home
        self._keeper = keeper
        self._known: OrderedDict[tuple[str, str], _Known] = OrderedDict()
        self._hours: dict[str, str] = {}
        self._lock = threading.Lock()

    @cached_property
    def kms(self) -> Kms:
        """Opened when a key is first asked for: each keeper brings a library, and most processes need none."""
        return self._keeper()

    def has(self, tenant: str, key: str) -> bool:
        return self._home.data_key(tenant, key).exists()

    def has_any(self, tenant: str) -> bool:
        return self._home.data_keys(tenant).is_dir()

    def new(self, tenant: str, key: str) -> str:
        """The key itself if it is there already."""
        path = self._home.data_key(tenant, key)
        if not path.exists():
            secret, is_first = secrets.token_bytes(SECRET_BYTES), not self.has_any(tenant)
            if _put_if_absent(path, self.kms.wrap(tenant, secret, _context(tenant, key), is_first=is_first)):
                self._remember(tenant, key, secret)
        return key

    def of_this_hour(self, tenant: str) -> str:
        """A key for what comes without a file of its own. Each process has its own."""
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

    def drop(self, tenant: str, key: str) -> None:
        """A key that has sealed nothing."""
        self._home.data_key(tenant, key).unlink(missing_ok=True)

    def seal(self, tenant: str, table: str, key: str, owner: str) -> Seal:
        return Seal(self._secret(tenant, key), key, tenant, table, owner)

    def rewrap(self, tenant: str) -> int:
        """Wraps the tenant's data keys by the newest version of its key; how many. What a destroyed key wrapped stays."""
        count = 0
        for path in self._paths(tenant):
            with suppress(KeyGone):
                _replace(path, self.kms.rewrap(tenant, _wrapped(path), _context(tenant, path.stem)))
                count += 1
        return count

    def count(self, tenant: str) -> int:
        return sum(1 for _ in self._paths(tenant))

    def destroy(self, tenant: str) -> str:
        """Nothing that the tenant's keys sealed can be read again. Says when that is certain."""
        mark = self._home.keys_destroyed(tenant)
        mark.parent.mkdir(parents=True, exist_ok=True)
        certain = self.kms.destroy(tenant)
        mark.touch()
        # The file system's own clock may be a little behind ours, by which others tell what they know from before.
        os.utime(mark, ns=(time.time_ns(),) * 2)
        return certain

    def destroyed_at(self, tenant: str) -> float:
        """When its key was last destroyed; 0 if never."""
        try:
            return self._home.keys_destroyed(tenant).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def _secret(self, tenant: str, key: str) -> bytes:
        with self._lock:
            known = self._known.get((tenant, key))
        if known is not None and time.monotonic() < known.until and known.since > self.destroyed_at(tenant):
            return known.secret
        secret = self.kms.unwrap(tenant, self._found(tenant, key), _context(tenant, key))
        self._remember(tenant, key, secret)
        return secret

    def _found(self, tenant: str, key: str) -> bytes:
        path, until = self._home.data_key(tenant, key), time.monotonic() + SEEN_SECONDS
        while True:
            try:
                return _wrapped(path)
            except FileNotFoundError as error:
                if not self.has_any(tenant) or time.monotonic() > until:
                    raise KeyGone(f"Tenant {tenant!r} has no data key {key}.") from error
                time.sleep(LOOK_SECONDS)

    def _remember(self, tenant: str, key: str, secret: bytes) -> None:
        with self._lock:
            self._known[tenant, key] = _Known(secret, time.time(), time.monotonic() + KNOWN_SECONDS)
            self._known.move_to_end((tenant, key))
            if len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)

    def _paths(self, tenant: str) -> Iterator[Path]:
        yield from sorted(self._home.data_keys(tenant).glob("*/*.json"))


@lru_cache(maxsize=16)
def keyring_of(home: str, settings: KmsSettings) -> Keyring:
    """One per process and home: what it unwrapped once it need not ask for again."""
    known = Home(Path(home))
    return Keyring(known, partial(open_kms, settings, known))


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
