"""HDFS over its HTTP interface, without Java: the operations that tables and file sinks are made of.

The name node says which data node to talk to; that address is judged, too."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import SplitResult, quote, urlencode

import orjson

from millrace.outbound.http import Answer, Http, Request
from millrace.outbound.pinning import Addresses

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

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """Raises FileNotFoundError."""
        part = {} if length is None else {"offset": str(offset), "length": str(length)}
        return self._http.send(self._at_data_node("GET", name, "OPEN", part)).body

    def fetch(self, name: str, path: str) -> None:
        self._http.fetch(self._at_data_node("GET", name, "OPEN", {}), path)

    def create(
        self,
        name: str,
        body: bytes | memoryview | None = None,
        stream: Callable[[], Iterator[bytes]] | None = None,
        length: int | None = None,
    ) -> None:
        """Creates or replaces a file; it may be seen half written."""
        self._http.send(self._at_data_node("PUT", name, "CREATE", {"overwrite": "true"}, body, stream, length))

    def rename(self, name: str, new: str) -> bool:
        """False if the new name is taken, or its folder is not there."""
        return bool(self._json("PUT", name, "RENAME", destination=f"{self._root}/{new}")["boolean"])

    def replace(self, name: str, new: str) -> None:
        """A rename that overwrites. Raises FileNotFoundError if the folder is not there."""
        self._ask("PUT", name, "RENAME", {"destination": f"{self._root}/{new}", "renameoptions": "OVERWRITE"})

    def make_folder(self, name: str) -> None:
        self._ask("PUT", name, "MKDIRS")

    def status(self, name: str) -> dict[str, Any] | None:
        answer = self._ask("GET", name, "GETFILESTATUS", also=(HTTPStatus.NOT_FOUND,))
        return None if answer.status == HTTPStatus.NOT_FOUND else orjson.loads(answer.body)["FileStatus"]

    def list(self, folder: str) -> list[dict[str, Any]]:
        """What is directly in the folder: pathSuffix, length, modificationTime, type."""
        answer = self._ask("GET", folder, "LISTSTATUS", also=(HTTPStatus.NOT_FOUND,))
        if answer.status == HTTPStatus.NOT_FOUND:
            return []
        found: list[dict[str, Any]] = orjson.loads(answer.body)["FileStatuses"]["FileStatus"]
        return found

    def delete(self, name: str) -> None:
        self._ask("DELETE", name, "DELETE", also=(HTTPStatus.NOT_FOUND,))

    def _at_data_node(
        self,
        method: str,
        name: str,
        operation: str,
        more: Mapping[str, str],
        body: bytes | memoryview | None = None,
        stream: Callable[[], Iterator[bytes]] | None = None,
        length: int | None = None,
    ) -> Callable[[], Request]:
        """The name node is asked anew for each attempt: the data node that it named may be gone."""

        def made() -> Request:
            place = self._json(method, name, operation, noredirect="true", **more)["Location"]
            kind = {} if method == "GET" else {"content-type": "application/octet-stream"}
            size = {} if length is None else {"content-length": str(length)}
            return Request(method, place, {**size, **kind}, body, stream)

        return made

    def _json(self, method: str, name: str, operation: str, **more: str) -> Any:
        return orjson.loads(self._ask(method, name, operation, more).body)

    def _ask(
        self,
        method: str,
        name: str,
        operation: str,
        more: Mapping[str, str] | None = None,
        also: Sequence[int] = (),
    ) -> Answer:
        place = quote(f"{self._root}/{name}".rstrip("/"), safe="/-_.~=")
        url = f"{self._base}{place}?{urlencode({'op': operation, **(more or {}), **self._who})}"
        return self._http.send(lambda: Request(method, url), also)
