"""Requests to object stores: to the very address that was judged, no redirects followed, answers bounded, tried again where a
server is only busy. OSError for whatever cannot be had; the caller says which other answers it understands.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from urllib.parse import urlsplit

import httpx2

Addresses = Callable[[str], Sequence[str]]
"""The IP addresses of a host that we may connect to; raises if there are none."""

CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 60.0
ATTEMPTS = 4
FIRST_PAUSE_SECONDS = 0.2
# Log entries, listings, checkpoints: what is read at once. Data files are streamed.
MOST_BYTES = 256 << 20
PIECE_BYTES = 1 << 20
_BUSY = {HTTPStatus.TOO_MANY_REQUESTS, *(status for status in HTTPStatus if status >= HTTPStatus.INTERNAL_SERVER_ERROR)}


class HttpFailed(OSError):
    """An answer that nobody asked for."""


@dataclass(frozen=True, slots=True)
class Request:
    """`path` is a file whose bytes are the body."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | memoryview | None = None
    path: str | None = None

    @property
    def shown(self) -> str:
        return f"{self.method} {self.url.partition('?')[0]}"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Http:
    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses

    def send(self, make: Callable[[], Request], also: Sequence[int] = (), retried: Sequence[int] = ()) -> Answer:
        """The answer to the request, made anew for each attempt, if it is a success or one of `also`."""

        def once() -> Answer:
            request = make()
            with self._open(request) as response:
                body = _bounded(response)
                _refuse(request, response, body, (*also, *retried))
                return Answer(response.status_code, response.headers, body)

        return _tried(once, retried)

    def fetch(self, make: Callable[[], Request], path: str) -> None:
        """The body of the answer, written into a file."""

        def once() -> Answer:
            request = make()
            with self._open(request) as response:
                _refuse(request, response, b"" if response.is_success else _bounded(response), ())
                with open(path, "wb") as file:
                    for piece in response.iter_raw(PIECE_BYTES):
                        file.write(piece)
            return Answer(response.status_code, response.headers, b"")

        _tried(once, ())

    @contextmanager
    def _open(self, request: Request) -> Iterator[httpx2.Response]:
        parts = urlsplit(request.url)
        address = self._addresses(parts.hostname or "")[0]
        host = f"[{address}]" if ":" in address else address
        judged = parts._replace(netloc=f"{host}:{parts.port}" if parts.port else host).geturl()
        try:
            with _client(parts.netloc).stream(
                request.method,
                judged,
                headers={"Host": parts.netloc, "Accept-Encoding": "identity", **request.headers},
                content=_content(request),
                extensions={"sni_hostname": parts.hostname},
            ) as response:
                yield response
        except httpx2.HTTPError as failed:
            raise OSError(f"{request.shown}: {type(failed).__name__} {failed}".strip()) from failed


@lru_cache(maxsize=64)
def _client(_host: str) -> httpx2.Client:
    """Connections are kept, by the name they were made for: two names may share an address, but not a connection."""
    timeout = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
    return httpx2.Client(timeout=timeout, trust_env=False, follow_redirects=False)


def _content(request: Request) -> bytes | Iterator[bytes] | None:
    if request.path is not None:
        return _pieces(request.path)
    return None if request.body is None else bytes(request.body)


def _pieces(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def _bounded(response: httpx2.Response) -> bytes:
    body = bytearray()
    for piece in response.iter_raw(PIECE_BYTES):
        body += piece
        if len(body) > MOST_BYTES:
            raise HttpFailed(f"{response.request.url.host} answered with more than {MOST_BYTES} bytes")
    return bytes(body)


def _refuse(request: Request, response: httpx2.Response, body: bytes, also: Sequence[int]) -> None:
    if response.is_success or response.status_code in also:
        return
    if response.status_code == HTTPStatus.NOT_FOUND:
        raise FileNotFoundError(request.shown)
    said = body[:300].decode(errors="replace")
    failed = HttpFailed(f"{request.shown} was answered with {response.status_code}: {said}")
    failed.errno = response.status_code
    raise failed


def _tried(once: Callable[[], Answer], retried: Sequence[int]) -> Answer:
    pause = FIRST_PAUSE_SECONDS
    for _ in range(ATTEMPTS - 1):
        with suppress(_Again):
            return _unless_busy(once, retried)
        time.sleep(pause)
        pause *= 2
    return once()


class _Again(Exception):
    """Worth another try."""


def _unless_busy(once: Callable[[], Answer], retried: Sequence[int]) -> Answer:
    try:
        answer = once()
    except FileNotFoundError:
        raise
    except OSError as failed:
        if isinstance(failed, HttpFailed) and failed.errno not in _BUSY:
            raise
        raise _Again from failed
    if answer.status in retried:
        raise _Again
    return answer
