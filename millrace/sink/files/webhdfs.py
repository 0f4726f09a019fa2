"""HDFS over its HTTP interface: whole files in and out, streamed, without Java in the worker.

A file is written beside its place and renamed when it is whole. The name node says which data node to talk to: that address
is judged, too, and the connection goes to the very address that was judged."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import IO, Any
from urllib.parse import SplitResult, quote, urlsplit

import httpx2

from millrace.model.sinks import Fault, SinkFailed
from millrace.sink.addresses import permitted

CONNECT_SECONDS, ANSWER_SECONDS = 10.0, 60.0
PIECE_BYTES = 1 << 20
_PORTS = {"webhdfs": 9870, "swebhdfs": 9871}


class WebHdfs:
    def __init__(self, place: SplitResult, settings: Mapping[str, Any], secret: Callable[[str], str]) -> None:
        scheme = "https" if place.scheme == "swebhdfs" else "http"
        host = f"[{place.hostname}]" if ":" in (place.hostname or "") else place.hostname
        self._base = f"{scheme}://{host}:{place.port or _PORTS[place.scheme]}/webhdfs/v1"
        self._root = place.path.rstrip("/")
        self._who = {"user.name": str(settings["user"])} if "user" in settings else {}
        if "token" in settings:
            self._who = {"delegation": secret(str(settings["token"]))}
        self._client = httpx2.Client(timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS), trust_env=False)

    def put(self, name: str, body: IO[bytes], size: int) -> None:
        folder, _, _ = name.rpartition("/")
        partial = f"{folder}/.{uuid.uuid4().hex}.partial" if folder else f".{uuid.uuid4().hex}.partial"
        told = self._ask("PUT", partial, "CREATE", noredirect="true", overwrite="true").json()
        self._send("PUT", str(told["Location"]), content=_pieces(body))
        found = self.size(partial)
        if found != size:
            self.delete(partial)
            raise SinkFailed(f"{name} has {found} bytes instead of {size}.", Fault.SINK)
        self._ask("PUT", partial, "RENAME", destination=f"{self._root}/{name}", renameoptions="OVERWRITE")

    def read(self, name: str) -> bytes | None:
        answer = self._ask("GET", name, "OPEN", missing_ok=True, noredirect="true")
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return None
        return self._send("GET", str(answer.json()["Location"])).content

    def size(self, name: str) -> int | None:
        answer = self._ask("GET", name, "GETFILESTATUS", missing_ok=True)
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return None
        found = answer.json()["FileStatus"]
        return int(found["length"]) if found["type"] == "FILE" else None

    def list(self, folder: str) -> dict[str, int]:
        answer = self._ask("GET", folder, "LISTSTATUS", missing_ok=True)
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return {}
        found: dict[str, int] = {}
        for one in answer.json()["FileStatuses"]["FileStatus"]:
            name = f"{folder}/{one['pathSuffix']}"
            if one["type"] == "DIRECTORY":
                found |= self.list(name)
            else:
                found[name] = int(one["length"])
        return found

    def delete(self, name: str) -> None:
        self._ask("DELETE", name, "DELETE", missing_ok=True)

    def close(self) -> None:
        self._client.close()

    def _ask(self, method: str, name: str, operation: str, missing_ok: bool = False, **more: str) -> httpx2.Response:
        url = f"{self._base}{quote(f'{self._root}/{name}', safe='/=-_.')}"
        return self._send(method, url, missing_ok, params={"op": operation, **more, **self._who})

    def _send(self, method: str, url: str, missing_ok: bool = False, **more: Any) -> httpx2.Response:
        """To the address that was judged, under the name that was given."""
        parts = urlsplit(url)
        address = permitted(parts.hostname or "")[0]
        host = f"[{address}]" if ":" in address else address
        judged = parts._replace(netloc=f"{host}:{parts.port}").geturl()
        answer = self._client.request(
            method,
            judged,
            headers={"Host": parts.netloc},
            extensions={"sni_hostname": parts.hostname},
            follow_redirects=False,
            **more,
        )
        if answer.is_success or (missing_ok and answer.status_code == HTTPStatus.NOT_FOUND):
            return answer
        raise SinkFailed(f"HDFS answered {answer.status_code}: {_reason(answer)}", Fault.SINK)


def _reason(answer: httpx2.Response) -> str:
    try:
        return str(answer.json()["RemoteException"]["message"])[:400]
    except (ValueError, KeyError, TypeError):
        return answer.text[:200]


def _pieces(body: IO[bytes]) -> Iterator[bytes]:
    while piece := body.read(PIECE_BYTES):
        yield piece
