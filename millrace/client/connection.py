"""HTTP to one platform: JSON, long answers and server-sent events. Errors of the HTTP client become the SDK's own here."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from millrace.client.endpoint import Endpoint, find_endpoint
from millrace.client.errors import Unreachable, problem_from
from millrace.client.trust import Trust
from millrace.model.errors import Invalid

if TYPE_CHECKING:
    import httpx2

_SECONDS, _CONNECT_SECONDS = 60.0, 10.0
_FIRST_ERROR_STATUS = 400


class Connection:
    """Safe to share between threads."""

    def __init__(self, url: str, token: str, *, ca_file: Path | None = None, trust: Trust | None = None) -> None:
        """`ca_file` holds the certificates of the authority that vouches for the platform, if the system does not know it."""
        self.endpoint = Endpoint(url.rstrip("/"), token, trust or Trust(ca_file))
        self._http = _http_client(self.endpoint)

    @classmethod
    def from_home(cls, home: Path | None = None, environ: Mapping[str, str] = os.environ) -> Self:
        """MILLRACE_URL, MILLRACE_TOKEN and MILLRACE_CA_FILE, or the client.json of a home."""
        endpoint = find_endpoint(home, environ)
        return cls(endpoint.url, endpoint.token, trust=endpoint.trust)

    def close(self) -> None:
        self._http.close()

    @property
    def is_closed(self) -> bool:
        return self._http.is_closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, method: str, path: str, **request: Any) -> "httpx2.Response":
        """Whatever the platform answers."""
        with self._reaching():
            return self._http.request(method, path, **request)

    def ok(self, method: str, path: str, **request: Any) -> "httpx2.Response":
        """The answer, unless it is a problem."""
        response = self.send(method, path, **request)
        if response.status_code >= _FIRST_ERROR_STATUS:
            raise problem_from(response.status_code, response.content)
        return response

    def json(self, method: str, path: str, **request: Any) -> Any:
        return self.ok(method, path, **request).json()

    def pieces(self, path: str, params: Mapping[str, str]) -> Iterator[bytes]:
        """A long answer as it arrives."""
        with self._reaching(), self._http.stream("GET", path, params=dict(params)) as response:
            _refuse_problem(response)
            yield from response.iter_bytes(1 << 20)

    def server_sent(
        self, path: str, after: int | None, opened: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Numbered events until the platform ends the answer; `opened` is called when it has begun."""
        headers = {"Accept": "text/event-stream", **({} if after is None else {"Last-Event-ID": str(after)})}
        timeout = (_CONNECT_SECONDS, None, _CONNECT_SECONDS, _CONNECT_SECONDS)
        with self._reaching(), self._http.stream("GET", path, headers=headers, timeout=timeout) as response:
            _refuse_problem(response)
            opened()
            yield from _parse_events(response.iter_lines())

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        import httpx2  # noqa: PLC0415

        # A certificate that was renewed is known before the next connection.
        self.endpoint.tls()
        try:
            yield
        except httpx2.TransportError as failed:
            raise Unreachable(self.endpoint.url, str(failed) or type(failed).__name__) from failed


def _http_client(endpoint: Endpoint) -> "httpx2.Client":
    # It takes longer to import than `millrace --help` takes to print.
    import httpx2  # noqa: PLC0415

    try:
        # The body of an upload is sent without proxies (file_body.py), so nothing here uses them either.
        return httpx2.Client(
            base_url=endpoint.url,
            headers={"Authorization": f"Bearer {endpoint.token}"},
            timeout=httpx2.Timeout(_SECONDS, connect=_CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=32),
            trust_env=False,
            verify=endpoint.tls() or False,
        )
    except httpx2.InvalidURL as refused:
        raise Invalid(f"{endpoint.url!r} is not an address: {refused}.", remedy="Write http://HOST:PORT.") from refused


def path_part(value: str) -> str:
    """One quoted path segment: no name can reach another route, and an empty one reaches nothing."""
    return quote(value, safe="").replace(".", "%2E") or "%20"


def _parse_events(lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    number, data = 0, ""
    for line in lines:
        if line.startswith("id:"):
            number = int(line[3:])
        elif line.startswith("data:"):
            data += line[5:]
        elif not line and data:
            yield number, json.loads(data)
            data = ""


def _refuse_problem(response: "httpx2.Response") -> None:
    if response.status_code >= _FIRST_ERROR_STATUS:
        raise problem_from(response.status_code, response.read())
