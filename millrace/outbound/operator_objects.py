"""A table's objects in a store that the operator configured, through obstore: `Objects` at a third of the processor time of
our own client (ADR 0029). Places that tenants name are not for this module: its client resolves names itself."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from millrace.outbound.objects import MOST_FETCHED, MOST_READ, Entry
from millrace.outbound.s3_signing import S3Keys

if TYPE_CHECKING:
    from obstore.store import S3Credential

CLAIMS, RETRIES = 4, 3
ANSWER_SECONDS = 600
PIECE_BYTES = 1 << 20
# Larger files go in parts; this many parts are in memory at a time.
PART_BYTES, PARTS_AT_ONCE = 8 << 20, 3


class OperatorObjects:
    """Names are below `prefix`."""

    def __init__(self, url: str, store: S3Store, prefix: str) -> None:
        self.url = url
        self._store = store
        self._prefix = prefix.strip("/")

    def get(self, name: str, most: int = MOST_READ) -> bytes:
        with _translated():
            found = obstore.get(self._store, self._path(name))
            if found.meta["size"] > most:
                raise OSError(f"{self.url}/{name} has more than {most} bytes")
            return found.bytes().to_bytes()

    def get_range(self, name: str, start: int, length: int) -> bytes:
        with _translated():
            return obstore.get_range(self._store, self._path(name), start=start, length=length).to_bytes()

    def fetch(self, name: str, path: str, most: int = MOST_FETCHED) -> None:
        with _translated(), open(path, "wb") as file:
            for piece in obstore.get(self._store, self._path(name)).stream(PIECE_BYTES):
                if file.tell() + len(piece) > most:
                    raise OSError(f"{self.url}/{name} has more than {most} bytes")
                file.write(piece)

    def put(self, name: str, data: bytes | memoryview) -> None:
        with _translated():
            obstore.put(self._store, self._path(name), bytes(data), use_multipart=False)

    def put_file(self, name: str, path: str) -> None:
        is_large = os.path.getsize(path) > PART_BYTES
        with _translated():
            obstore.put(
                self._store,
                self._path(name),
                Path(path),
                use_multipart=is_large,
                chunk_size=PART_BYTES,
                max_concurrency=PARTS_AT_ONCE,
            )

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        for _ in range(CLAIMS):
            with _translated():
                try:
                    obstore.put(self._store, self._path(name), bytes(data), mode="create", use_multipart=False)
                    return True
                except AlreadyExistsError:
                    # S3 also answers so while another claim is in progress, which may still fail.
                    with suppress(FileNotFoundError):
                        self.size(name)
                        return False
        raise OSError(f"{self.url}/{name} can neither be claimed nor read")

    def size(self, name: str) -> int:
        with _translated():
            return int(obstore.head(self._store, self._path(name))["size"])

    def list(self, folder: str) -> Sequence[Entry]:
        with _translated():
            found = obstore.list_with_delimiter(self._store, self._path(folder))["objects"]
        cut = len(self._prefix) + 1
        entries = [Entry(one["path"][cut:], int(one["size"]), one["last_modified"].timestamp()) for one in found]
        return sorted(entries, key=lambda entry: entry.name)

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError), _translated():
            obstore.delete(self._store, self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._prefix}/{name}".strip("/")


@lru_cache(maxsize=16)
def s3_store(bucket: str, keys: S3Keys, endpoint: str | None, region: str) -> S3Store:
    """One store for all tables in the bucket: each store has its own client and connections."""
    place = endpoint or f"https://s3.{region}.amazonaws.com"
    return S3Store(
        bucket,
        # Given explicitly, because AWS_ variables in the environment may belong to the KMS client.
        config={
            "endpoint": place,
            "region": region,
            "virtual_hosted_style_request": False,
            "skip_signature": False,
            "conditional_put": "etag",
        },
        client_options={
            "allow_http": place.startswith("http:"),
            "timeout": timedelta(seconds=ANSWER_SECONDS),
            # Straight to the store, whatever HTTP_PROXY says.
            "proxy_url": place,
            "proxy_excludes": urlsplit(place).hostname or "",
        },
        retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=ANSWER_SECONDS)},
        credential_provider=lambda: _credential(keys),
    )


def _credential(keys: S3Keys) -> "S3Credential":
    return {
        "access_key_id": keys.access_key,
        "secret_access_key": keys.secret_key,
        "token": keys.session_token,
        "expires_at": None,
    }


@contextmanager
def _translated() -> Iterator[None]:
    """Failures as `Objects` has them. Only the first line of a message is for people."""
    try:
        yield
    except FileNotFoundError as missing:
        raise FileNotFoundError(str(missing).partition("\n")[0]) from missing
    except BaseError as failed:
        raise OSError(str(failed).partition("\n")[0]) from failed
