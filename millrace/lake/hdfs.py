"""A table's objects in HDFS, over its HTTP interface: a place and a user in, `Objects` out, without Java. A file is written
beside its place and renamed when it is whole; a rename that would overwrite is refused by the name node, which claims names.
"""

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import orjson

from millrace.lake.http import Addresses, Answer, Http, Request
from millrace.lake.store import TEMPORARY_FOLDER, Entry


class HdfsObjects:
    """`who` are the parameters that say who asks; `base` is the name node's HTTP address."""

    def __init__(self, url: str, base: str, root: str, who: Mapping[str, str], addresses: Addresses) -> None:
        self.url = url
        self._base = f"{base.rstrip('/')}/webhdfs/v1"
        self._root = f"/{root.strip('/')}"
        self._who = dict(who)
        self._http = Http(addresses)

    def get(self, name: str) -> bytes:
        return self._http.send(self._at_data_node("GET", name, "OPEN")).body

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self._http.send(self._at_data_node("GET", name, "OPEN", offset=str(start), length=str(length))).body

    def fetch(self, name: str, path: str) -> None:
        self._http.fetch(self._at_data_node("GET", name, "OPEN"), path)

    def put(self, name: str, data: bytes | memoryview) -> None:
        self._replace(self._written(data), name)

    def put_file(self, name: str, path: str) -> None:
        self._replace(self._written(None, path), name)

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        written = self._written(data)
        if self._renamed(written, name):
            return True
        # Refused because the name is taken, or because its folder is not there yet.
        if not self._is_there(name):
            self._ask("PUT", os.path.dirname(name), "MKDIRS")
            if self._renamed(written, name):
                return True
        self.delete(written)
        return False

    def size(self, name: str) -> int:
        return int(self._told("GET", name, "GETFILESTATUS")["FileStatus"]["length"])

    def list(self, folder: str) -> Sequence[Entry]:
        answer = self._ask("GET", folder, "LISTSTATUS", also=(HTTPStatus.NOT_FOUND,))
        if answer.status == HTTPStatus.NOT_FOUND:
            return []
        prefix = f"{folder}/" if folder else ""
        found = orjson.loads(answer.body)["FileStatuses"]["FileStatus"]
        entries = [
            Entry(prefix + one["pathSuffix"], one["length"], one["modificationTime"] / 1000)
            for one in found
            if one["type"] == "FILE"
        ]
        return sorted(entries, key=lambda entry: entry.name)

    def delete(self, name: str) -> None:
        self._ask("DELETE", name, "DELETE", also=(HTTPStatus.NOT_FOUND,))

    def _written(self, data: bytes | memoryview | None, path: str | None = None) -> str:
        """The name of a new file that holds these bytes."""
        name = f"{TEMPORARY_FOLDER}/{uuid.uuid4().hex}"
        self._http.send(self._at_data_node("PUT", name, "CREATE", data, path, overwrite="true"))
        return name

    def _replace(self, written: str, name: str) -> None:
        placing = {"destination": f"{self._root}/{name}", "renameoptions": "OVERWRITE"}
        try:
            self._ask("PUT", written, "RENAME", placing)
        except FileNotFoundError:
            self._ask("PUT", os.path.dirname(name), "MKDIRS")
            self._ask("PUT", written, "RENAME", placing)

    def _renamed(self, written: str, name: str) -> bool:
        return bool(self._told("PUT", written, "RENAME", destination=f"{self._root}/{name}")["boolean"])

    def _is_there(self, name: str) -> bool:
        answer = self._ask("GET", name, "GETFILESTATUS", also=(HTTPStatus.NOT_FOUND,))
        return answer.status != HTTPStatus.NOT_FOUND

    def _at_data_node(
        self,
        method: str,
        name: str,
        operation: str,
        body: bytes | memoryview | None = None,
        path: str | None = None,
        **more: str,
    ) -> Callable[[], Request]:
        """The name node says which data node to talk to; asked anew for each attempt, that one may be gone."""

        def made() -> Request:
            place = self._told(method, name, operation, noredirect="true", **more)["Location"]
            length = {"content-length": str(os.path.getsize(path))} if path is not None else {}
            kind = {} if method == "GET" else {"content-type": "application/octet-stream"}
            return Request(method, place, {**length, **kind}, body, path)

        return made

    def _told(self, method: str, name: str, operation: str, **more: str) -> Any:
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
