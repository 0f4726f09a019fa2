"""The HTTP client for addresses that somebody else named: object stores, HDFS, receivers of rows and events.

Requests go to the very address that was judged, redirects are not followed, answers are bounded. `Http` is for threads and
tries again where a server is only busy: OSError for whatever cannot be had. `post` is for event loops and sends once:
Invalid for a target that may not be asked, Unavailable for one that is silent."""

import asyncio
import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import httpcore2

from millrace.model.addresses import Networks
from millrace.model.errors import Unavailable
from millrace.outbound.addresses import Judged, Target
from millrace.outbound.pinning import Addresses, async_pool, extensions, pool
from millrace.outbound.unhurried import Dripping

ANSWER_SECONDS, POST_SECONDS = 60.0, 15.0
ATTEMPTS = 4
FIRST_PAUSE_SECONDS = 0.2
# What is read at once. Data files are streamed.
MOST_BYTES = 64 << 20
MOST_ERROR_BYTES = 1 << 20
PIECE_BYTES = 1 << 20
_BUSY = {HTTPStatus.TOO_MANY_REQUESTS, *(status for status in HTTPStatus if status >= HTTPStatus.INTERNAL_SERVER_ERROR)}
_FAILURES = (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError)
# A server may name such an address. The texts of these errors may quote a header, and so a secret.
_UNSENDABLE = (httpcore2.UnsupportedProtocol, httpcore2.LocalProtocolError, TypeError, ValueError)
MOST_SHOWN = 200


class HttpFailed(OSError):
    """An answer that nobody asked for."""


@dataclass(frozen=True, slots=True)
class Request:
    """`stream` makes the body anew for each attempt."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | memoryview | None = None
    stream: Callable[[], Iterator[bytes]] | None = None

    @property
    def shown(self) -> str:
        return f"{self.method} {self.url.partition('?')[0]}"

    @property
    def content(self) -> bytes | Iterator[bytes] | None:
        if self.stream is not None:
            return self.stream()
        if self.body is None:
            return None if self.method in ("GET", "HEAD", "DELETE") else b""
        return bytes(self.body)


@dataclass(frozen=True, slots=True)
class Answer:
    """`headers` by their names in small letters."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def is_success(self) -> bool:
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def retry_after(self) -> float | None:
        seconds = self.headers.get("retry-after", "").strip()
        return float(seconds) if seconds.isdecimal() and len(seconds) <= 9 else None


class Http:
    """`ca_file` holds the certificates that vouch for the servers; without it the system's do."""

    def __init__(self, addresses: Addresses, ca_file: Path | None = None) -> None:
        self._addresses = addresses
        self._ca_file = ca_file

    def send(
        self,
        make: Callable[[], Request],
        also: Sequence[int] = (),
        retried: Sequence[int] = (),
        most: int | None = None,
    ) -> Answer:
        """The answer to the request, made anew for each attempt, if it is a success or one of `also`. OSError if it has more
        than `most` bytes."""
        limit = MOST_BYTES if most is None else most
        return _tried(lambda: self._once(make(), (*also, *retried), None, limit), retried)

    def fetch(self, make: Callable[[], Request], path: str, most: int) -> None:
        """The body of the answer, written into a file; OSError if it has more than `most` bytes."""
        _tried(lambda: self._once(make(), (), path, most), ())

    def _once(self, request: Request, also: Sequence[int], path: str | None, most: int) -> Answer:
        with self._open(request) as response:
            answer = Answer(response.status, _headers(response))
            if path is None or not answer.is_success:
                limit = most if answer.is_success else MOST_ERROR_BYTES
                # Unlike a list of pieces that are joined, it is never there twice.
                body = io.BytesIO()
                body.writelines(_pieces(request, response, limit))
                answer = replace(answer, body=body.getvalue())
                _refuse(request, answer, also)
                return answer
            with open(path, "wb") as file:
                file.writelines(_pieces(request, response, most))
        return answer

    @contextmanager
    def _open(self, request: Request) -> Iterator[httpcore2.Response]:
        try:
            parts = urlsplit(request.url)
            host = parts.hostname or ""
            target = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
            url = httpcore2.URL(scheme=parts.scheme, host=host, port=parts.port, target=target)
            headers = {"Host": parts.netloc, "User-Agent": "millrace", "Accept-Encoding": "identity", **request.headers}
            with pool(self._addresses, self._ca_file).stream(
                request.method,
                url,
                headers=list(headers.items()),
                content=request.content,
                extensions=extensions(host, ANSWER_SECONDS),
            ) as response:
                yield response
        except _UNSENDABLE:
            raise HttpFailed(f"{request.shown[:MOST_SHOWN]}: its address or a header is not one of HTTP") from None
        except Dripping as slow:
            raise HttpFailed(f"{request.shown[:MOST_SHOWN]} is answered too slowly: {_reason(slow)}") from None
        except _FAILURES as failed:
            raise OSError(f"{request.shown}: {type(failed).__name__} {_reason(failed)}") from failed


async def post(
    target: Target, headers: Mapping[str, str], body: bytes, allowed: Networks, seconds: float = POST_SECONDS
) -> Answer:
    """Sends once; of the answer only the head is read."""
    url = httpcore2.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
    sent = {"Host": target.authority, "User-Agent": "millrace", **headers}
    try:
        async with (
            asyncio.timeout(seconds),
            async_pool(Judged(tuple(allowed))) as connections,
            connections.stream(
                "POST", url, headers=list(sent.items()), content=body, extensions=extensions(target.host, seconds)
            ) as response,
        ):
            return Answer(response.status, _headers(response))
    except (TimeoutError, httpcore2.ReadTimeout, httpcore2.WriteTimeout):
        raise Unavailable(f"{target.host} did not answer within {seconds:g} s.", code="timeout") from None
    except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as failed:
        raise Unavailable(f"{target.host} takes no connection: {_reason(failed)}.", code="no_connection") from None
    except httpcore2.ProtocolError as failed:
        raise Unavailable(f"{target.host} does not speak HTTP: {_reason(failed)}.", code="not_http") from None
    except (httpcore2.NetworkError, OSError) as failed:
        raise Unavailable(f"{target.host} broke off: {_reason(failed)}.", code="broken") from None


def _reason(failed: BaseException) -> str:
    """An error of the protocol quotes what the server sent."""
    return str(failed).rstrip(".")[:MOST_SHOWN] or type(failed).__name__


def _headers(response: httpcore2.Response) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}


def _pieces(request: Request, response: httpcore2.Response, most: int) -> Iterator[bytes]:
    size = 0
    for piece in response.iter_stream():
        size += len(piece)
        if size > most:
            raise HttpFailed(f"{request.shown[:MOST_SHOWN]} is answered with more than {most} bytes")
        yield piece


def _refuse(request: Request, answer: Answer, also: Sequence[int]) -> None:
    if answer.is_success or answer.status in also:
        return
    reason = answer.body[:300].decode(errors="replace")
    if answer.status == HTTPStatus.NOT_FOUND:
        raise FileNotFoundError(f"{request.shown} {reason}".strip())
    if HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST:
        to = answer.headers.get("location", "another address")[:MOST_SHOWN]
        reason = f"a redirect to {to}. Redirects are not followed: give the address it points to"
    failed = HttpFailed(f"{request.shown} was answered with {answer.status}: {reason}")
    failed.errno = answer.status
    raise failed


def pieces_of(body: IO[bytes]) -> Iterator[bytes]:
    """From its beginning."""
    body.seek(0)
    while piece := body.read(PIECE_BYTES):
        yield piece


def _tried(once: Callable[[], Answer], retried: Sequence[int]) -> Answer:
    for attempt in range(ATTEMPTS - 1):
        try:
            answer = once()
            if answer.status not in retried:
                return answer
        except OSError as failed:
            is_final = isinstance(failed, HttpFailed) and failed.errno not in _BUSY
            if is_final or isinstance(failed, FileNotFoundError):
                raise
        time.sleep(FIRST_PAUSE_SECONDS * 2**attempt)
    return once()
