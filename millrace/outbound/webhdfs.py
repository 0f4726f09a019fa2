"""HDFS over its HTTP interface, without Java: the operations that tables and file sinks are made of.

The name node says which data node to talk to; that address is judged, too."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import SplitResult, quote, urlencode

import orjson

from millrace.outbound.http import Answer, Http, HttpFailed, Request
from millrace.outbound.objects import MOST_FETCHED, MOST_READ
from millrace.outbound.pinning import Addresses

MOST_ANSWER_BYTES = 1 << 20
# Of a folder, which HDFS lists at once: about 70,000 files.
MOST_LISTING_BYTES, MOST_LISTING_VALUES = 32 << 20, 1_000_000
# The default HTTP ports of name nodes.
NAME_NODE_PORTS = {"hdfs": 9870, "webhdfs": 9870, "swebhdfs": 9871}


def name_node(place: SplitResult) -> str:
    """The name node's HTTP address. The port in an hdfs:// place is that of Hadoop's own protocol."""
    host = f"[{place.hostname}]" if ":" in (place.hostname or "") else place.hostname
    usual = NAME_NODE_PORTS[place.scheme]
    port = usual if place.scheme == "hdfs" else place.port or usual
    return f"{'https' if place.scheme == 'swebhdfs' else 'http'}://{host}:{port}"


def identity(user: str | None, token: str | None) -> dict[str, str]:
    """The parameters that say who asks: a delegation token, or a user name if the cluster does not authenticate."""
    if token is not None:
        return {"delegation": token}
    return {"user.name": user} if user else {}


class WebHdfs:
    """Names are relative to `root`; `base` is the name node's HTTP address, `who` says who asks."""

    def __init__(self, base: str, root: str, who: Mapping[str, str], addresses: Addresses) -> None:
        self._base = f"{base.rstrip('/')}/webhdfs/v1"
        self._root = f"/{root.strip('/')}" if root.strip("/") else ""
        self._who = dict(who)
        self._http = Http(addresses)

    def get(self, name: str, most: int = MOST_READ) -> bytes:
        """Raises FileNotFoundError."""
        return self._http.send(lambda: Request("GET", self._data_node("GET", name, "OPEN")), most=most).body

    def get_range(self, name: str, start: int, length: int) -> bytes:
        part = {"offset": str(start), "length": str(length)}
        request = partial(self._data_node, "GET", name, "OPEN", **part)
        return self._http.send(lambda: Request("GET", request()), most=length).body

    def fetch(self, name: str, path: str, most: int = MOST_FETCHED) -> None:
        self._http.fetch(lambda: Request("GET", self._data_node("GET", name, "OPEN")), path, most)

    def create(self, name: str, stream: Callable[[], Iterator[bytes]], length: int) -> None:
        """Creates or replaces a file; it may be seen half written."""
        headers = {"content-length": str(length), "content-type": "application/octet-stream"}
        self._http.send(
            lambda: Request("PUT", self._data_node("PUT", name, "CREATE", overwrite="true"), headers, stream=stream)
        )

    def rename(self, name: str, new: str) -> bool:
        """False if the new name is taken, or its folder is not there."""
        return bool(self._json("PUT", name, "RENAME", destination=f"{self._root}/{new}")["boolean"])

    def replace(self, name: str, new: str) -> None:
        """A rename that overwrites. Raises FileNotFoundError if the folder is not there."""
        self._ask("PUT", name, "RENAME", {"destination": f"{self._root}/{new}", "renameoptions": "OVERWRITE"})

    def make_folder(self, name: str) -> None:
        self._ask("PUT", name, "MKDIRS")

    def size(self, name: str) -> int:
        """Raises FileNotFoundError."""
        return int(self._json("GET", name, "GETFILESTATUS")["FileStatus"]["length"])

    def statuses(self, folder: str) -> list[dict[str, Any]]:
        """What is directly in the folder: pathSuffix, length, modificationTime, type."""
        answer = self._ask("GET", folder, "LISTSTATUS", also=(HTTPStatus.NOT_FOUND,), most=MOST_LISTING_BYTES)
        if answer.status == HTTPStatus.NOT_FOUND:
            return []
        # Before it is parsed: a value takes up to 100 bytes.
        if sum(map(answer.body.count, (b",", b"[", b"{"))) > MOST_LISTING_VALUES:
            raise HttpFailed(f"{self._base}{self._root}/{folder} lists too many files")
        found: list[dict[str, Any]] = orjson.loads(answer.body)["FileStatuses"]["FileStatus"]
        return found

    def delete(self, name: str) -> None:
        self._ask("DELETE", name, "DELETE", also=(HTTPStatus.NOT_FOUND,))

    def _data_node(self, method: str, name: str, operation: str, **more: str) -> str:
        """The name node is asked anew for each attempt: the data node that it named may be gone."""
        return str(self._json(method, name, operation, noredirect="true", **more)["Location"])

    def _json(self, method: str, name: str, operation: str, **more: str) -> Any:
        return orjson.loads(self._ask(method, name, operation, more).body)

    def _ask(
        self,
        method: str,
        name: str,
        operation: str,
        more: Mapping[str, str] | None = None,
        also: Sequence[int] = (),
        most: int = MOST_ANSWER_BYTES,
    ) -> Answer:
        place = quote(f"{self._root}/{name}".rstrip("/"), safe="/-_.~=")
        url = f"{self._base}{place}?{urlencode({'op': operation, **(more or {}), **self._who})}"
        return self._http.send(lambda: Request(method, url), also, most=most)
