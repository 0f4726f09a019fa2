"""One client of the REST API: every request goes through its history, every answer is searched for canaries."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from checker.history import FAIL, INFO, OK, History, digest

SECONDS = 60.0
SERVER_ERROR = 500
CLIENT_ERROR = 400


@dataclass(frozen=True, slots=True)
class Answer:
    """`kind` is ok, fail or info; `status` 0 without an answer; `text` what came; `document` the JSON in it, if any."""

    kind: str
    status: int
    document: dict[str, Any]
    headers: Mapping[str, str]
    text: str = ""


class Caller:
    """Not shared between threads."""

    def __init__(self, url: str, token: str, tenant: str | None, canaries: Mapping[str, str], folder: Path) -> None:
        self.tenant = tenant
        self._canaries = {owner: canary.encode() for owner, canary in canaries.items()}
        self._http = httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=SECONDS)
        self._history = History(folder)

    def ask(
        self,
        f: str,
        method: str,
        path: str,
        *,
        table: str | None = None,
        key: str | None = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> Answer:
        """One request, recorded before and after."""
        said = {"tenant": self.tenant, "table": table, "idem_key": key, "args_digest": digest(body), "path": path}
        line = self._history.invoke(f, **said)
        sent = {**(headers or {}), **({"Idempotency-Key": key} if key else {})}
        try:
            response = self._http.request(method, path, content=body, headers=sent, params=dict(params or {}))
            content = response.read()
        except httpx2.ConnectError as error:
            return self._close(line, FAIL, 0, b"", {}, f"unreachable: {error}")
        except httpx2.HTTPError as error:
            return self._close(line, INFO, 0, b"", {}, f"{type(error).__name__}: {error}")
        kind = OK if response.status_code < CLIENT_ERROR else FAIL if response.status_code < SERVER_ERROR else INFO
        return self._close(line, kind, response.status_code, content, response.headers, "")

    def _close(
        self, line: dict[str, Any], kind: str, status: int, content: bytes, headers: Mapping[str, str], trouble: str
    ) -> Answer:
        document = _parsed(content)
        seen = [owner for owner, canary in self._canaries.items() if canary in content]
        result = {"status": status, **_essence(document), **({"trouble": trouble} if trouble else {})}
        if "Location" in headers:
            result["import"] = headers["Location"].rsplit("/", 1)[-1]
        self._history.done(line, kind, result, seen)
        return Answer(kind, status, document, headers, content.decode(errors="replace"))

    def close(self) -> None:
        self._http.close()
        self._history.close()


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content) if content else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _essence(document: dict[str, Any]) -> dict[str, Any]:
    """What the checks want of an answer: of an import its id, state and counts; of a definition what it made."""
    kept: dict[str, Any] = {
        name: document[name] for name in ("revision", "changed", "code", "detail", "op", "state") if name in document
    }
    if "chunks" in document and "rows" in document and "id" in document:
        durable = [sink["durable_chunks"] for sink in document.get("sinks", {}).values()]
        counts = {**document["rows"], "judged": document["chunks"]["judged"], "durable": sum(durable)}
        kept |= {"import": document["id"], "counts": counts}
    elif document.get("import"):
        kept["import"] = document["import"]
    return kept
