"""A tenant's files in Google Cloud Storage, by its JSON interface, over judged addresses.

Tokens are signed in this process by the tenant's own service account: nothing in its key file makes us connect anywhere."""

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import IO
from urllib.parse import quote, urlencode

import orjson

from millrace.model.sinks import Fault, SinkFailed
from millrace.outbound.http import Http, Request, pieces_of
from millrace.outbound.objects import MOST_LISTED
from millrace.outbound.pinning import Addresses
from millrace.sink.google_account import service_account

ENDPOINT = "https://storage.googleapis.com"
SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)
RENEWED_BEFORE = timedelta(minutes=10)

Tokens = Callable[[], str]


class GoogleFiles:
    """Names are relative to `root` in the bucket."""

    def __init__(self, bucket: str, root: str, tokens: Tokens, addresses: Addresses, endpoint: str | None) -> None:
        base = (endpoint or ENDPOINT).rstrip("/")
        self._objects = f"{base}/storage/v1/b/{quote(bucket, safe='')}/o"
        self._upload = f"{base}/upload/storage/v1/b/{quote(bucket, safe='')}/o"
        self._root = root.strip("/")
        self._tokens = tokens
        self._http = Http(addresses)

    def put_stream(self, name: str, body: IO[bytes], size: int) -> None:
        """The object appears when all of it has arrived."""
        headers = {"content-length": str(size), "content-type": "application/octet-stream"}
        url = f"{self._upload}?{urlencode({'uploadType': 'media', 'name': self._key(name)})}"
        answer = self._http.send(lambda: Request("POST", url, self._signed(headers), stream=lambda: pieces_of(body)))
        found = int(orjson.loads(answer.body)["size"])
        if found != size:
            self.delete(name)
            raise SinkFailed(f"{name} has {found} bytes instead of {size}.", Fault.SINK)

    def get(self, name: str) -> bytes:
        return self._http.send(self._request("GET", f"{self._place(name)}?alt=media")).body

    def size(self, name: str) -> int:
        return int(orjson.loads(self._http.send(self._request("GET", self._place(name))).body)["size"])

    def names(self, folder: str) -> list[str]:
        asked = {"prefix": self._key(f"{folder}/"), "fields": "items(name),nextPageToken"}
        cut, found, token = len(self._key("")), list[str](), ""
        while True:
            query = urlencode({**asked, **({"pageToken": token} if token else {})})
            page = orjson.loads(self._http.send(self._request("GET", f"{self._objects}?{query}")).body)
            found += [str(item["name"])[cut:] for item in page.get("items", [])]
            before, token = token, str(page.get("nextPageToken", ""))
            if not token:
                return found
            if len(found) > MOST_LISTED or token == before:
                raise OSError(f"{folder} lists more than {MOST_LISTED} objects, or does not end")

    def delete(self, name: str) -> None:
        self._http.send(self._request("DELETE", self._place(name)), also=(HTTPStatus.NOT_FOUND,))

    def _key(self, name: str) -> str:
        return f"{self._root}/{name}" if self._root else name

    def _place(self, name: str) -> str:
        return f"{self._objects}/{quote(self._key(name), safe='')}"

    def _request(self, method: str, url: str) -> Callable[[], Request]:
        return lambda: Request(method, url, self._signed({}))

    def _signed(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {**headers, "authorization": f"Bearer {self._tokens()}"}


class SignedTokens:
    """The account's token, renewed in time."""

    def __init__(self, key: str) -> None:
        self._account = service_account(key, SCOPES)
        self._until = datetime.min.replace(tzinfo=UTC)
        self._lock = threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            if datetime.now(UTC) + RENEWED_BEFORE > self._until:
                # Without anything to ask with.
                self._account.refresh(None)
                self._until = self._account.expiry.replace(tzinfo=UTC)
            return str(self._account.token)
