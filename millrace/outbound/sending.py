"""One HTTP request to an address that a tenant typed: a target, headers and a body in; the status of the answer out.

Everything about it is bounded: where it goes, how long it takes, how much is read. Redirects are not followed, and of the
answer to a POST only its head is looked at. Raises Invalid for a target that may not be asked, Unavailable for one that is
silent."""

import asyncio
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from millrace.model.addresses import Address, Networks
from millrace.model.errors import Unavailable
from millrace.outbound.addresses import Target, permitted_addresses

SECONDS = 15.0
CONNECT_SECONDS = 5.0
HEAD_BYTES = 32 << 10
BODY_BYTES = 256 << 20
MOST_INTERIM_ANSWERS = 5
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: |\r)")
_RETRY_AFTER = re.compile(rb"^retry-after: *([0-9]{1,9}) *\r$", re.IGNORECASE | re.MULTILINE)
_FIRST_FINAL = 200


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    retry_after: float | None = None

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


async def post(
    target: Target, headers: Mapping[str, str], body: bytes, allowed: Networks, seconds: float = SECONDS
) -> Answer:
    try:
        async with asyncio.timeout(seconds):
            return await _post(target, headers, body, allowed)
    except TimeoutError:
        raise Unavailable(f"{target.host} did not answer within {seconds:g} s.", code="timeout") from None
    except (OSError, asyncio.IncompleteReadError) as failed:
        raise Unavailable(f"{target.host} broke off: {_told(failed)}.", code="broken") from None
    except asyncio.LimitOverrunError:
        raise Unavailable(f"{target.host} answered with too long a head.", code="not_http") from None


async def _post(target: Target, headers: Mapping[str, str], body: bytes, allowed: Networks) -> Answer:
    reader, writer = await _connect(target, await permitted_addresses(target, allowed))
    try:
        writer.write(_request(target, headers, body))
        await writer.drain()
        return await _answer(reader, target)
    finally:
        writer.close()


async def fetch(target: Target, headers: Mapping[str, str], allowed: Networks, seconds: float = SECONDS) -> bytes:
    """The body of a GET that is answered with 200, as far as `BODY_BYTES`; the rest of a longer one is refused."""
    try:
        async with asyncio.timeout(seconds):
            return await _fetch(target, headers, allowed)
    except TimeoutError:
        raise Unavailable(f"{target.host} did not answer within {seconds:g} s.", code="timeout") from None
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as failed:
        raise Unavailable(f"{target.host} broke off: {_told(failed)}.", code="broken") from None


async def _fetch(target: Target, headers: Mapping[str, str], allowed: Networks) -> bytes:
    reader, writer = await _connect(target, await permitted_addresses(target, allowed))
    try:
        # In version 1.0 an answer is never cut into pieces: it ends with the connection.
        lines = [f"GET {target.path} HTTP/1.0", f"Host: {target.authority}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("ascii"))
        await writer.drain()
        answer = await _answer(reader, target)
        if answer.status != _FIRST_FINAL:
            raise Unavailable(f"{target.host} answered {answer.status}.", code="answered")
        return await _body(reader, target)
    finally:
        writer.close()


async def _body(reader: asyncio.StreamReader, target: Target) -> bytes:
    parts, size = [], 0
    while part := await reader.read(HEAD_BYTES):
        parts.append(part)
        size += len(part)
        if size > BODY_BYTES:
            raise Unavailable(f"{target.host} answered with more than {BODY_BYTES} bytes.", code="too_long")
    return b"".join(parts)


async def _connect(target: Target, addresses: list[Address]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """To the first address that takes the connection; TLS is made out to the host's name, whatever its address."""
    tls, name = (_tls(), target.host.rstrip(".")) if target.scheme == "https" else (None, None)
    failed: Exception | None = None
    for address in addresses:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await asyncio.open_connection(
                    str(address), target.port, limit=HEAD_BYTES, ssl=tls, server_hostname=name
                )
        except (OSError, TimeoutError) as failure:
            failed = failure
    raise Unavailable(f"{target.host} takes no connection: {_told(failed)}.", code="no_connection")


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _request(target: Target, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"POST {target.path} HTTP/1.1", f"Host: {target.authority}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {len(body)}", "User-Agent: millrace", "Connection: close"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii") + body


async def _answer(reader: asyncio.StreamReader, target: Target) -> Answer:
    for _ in range(MOST_INTERIM_ANSWERS):
        head = await reader.readuntil(b"\r\n\r\n")
        found = _STATUS.match(head)
        if found is None:
            break
        status = int(found[1])
        if status >= _FIRST_FINAL:
            later = _RETRY_AFTER.search(head)
            return Answer(status, float(later[1]) if later else None)
    raise Unavailable(f"{target.host} does not speak HTTP.", code="not_http")


def _told(failed: BaseException | None) -> str:
    return str(failed) or type(failed).__name__
