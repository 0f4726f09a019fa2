"""The bounds of every request's body: how large it may be, and how long the platform waits for it.

Nothing believes Content-Length: it can only refuse early. What arrives is counted."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request
from starlette.types import Message, Receive

from millrace.control.rules.imports import DEFAULT_MAX_BYTES
from millrace.model.errors import TooLarge, TooSlow

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
# What a form holds beside its file.
FORM_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class BodyBounds:
    """`seconds`: how long all of it may take to arrive. `idle_seconds`: how long the next bytes may; None: the lease of an
    upload. Only waiting for the sender counts."""

    size: int
    remedy: str
    seconds: float = 30.0
    idle_seconds: float | None = 30.0


DOCUMENT = BodyBounds(2 << 20, "Send a shorter document.")
FILE = BodyBounds(DEFAULT_MAX_BYTES + FORM_BYTES, "Split the file.", seconds=86_400.0, idle_seconds=None)
_DECLARED: dict[Callable[..., Any], BodyBounds] = {}


def takes(bounds: BodyBounds) -> Callable[[Endpoint], Endpoint]:
    """Decorates the function of an endpoint whose body is not a document."""

    def declare(endpoint: Endpoint) -> Endpoint:
        _DECLARED[endpoint] = bounds
        return endpoint

    return declare


def bounds_of(endpoint: Callable[..., Any]) -> BodyBounds:
    return _DECLARED.get(endpoint, DOCUMENT)


def bounded(request: Request, bounds: BodyBounds, lease_seconds: float) -> Request:
    """The request, whose body is refused as soon as it is known to be too large or too slow."""
    if declared_length(request) > bounds.size:
        raise _too_large(bounds)
    idle_seconds = lease_seconds if bounds.idle_seconds is None else bounds.idle_seconds
    return Request(request.scope, _Counted(request.receive, bounds, idle_seconds))


def declared_length(request: Request) -> int:
    """0 if the request does not say it."""
    declared = request.headers.get("content-length", "")
    return int(declared) if declared.isascii() and declared.isdigit() else 0


class _Counted:
    def __init__(self, receive: Receive, bounds: BodyBounds, idle_seconds: float) -> None:
        self._receive = receive
        self._bounds = bounds
        self._idle_seconds = idle_seconds
        self._size = 0
        self._waited = 0.0

    async def __call__(self) -> Message:
        message = await self._next()
        self._size += len(message.get("body", b""))
        if self._size > self._bounds.size:
            raise _too_large(self._bounds)
        return message

    async def _next(self) -> Message:
        clock = asyncio.get_running_loop().time
        begun = clock()
        try:
            async with asyncio.timeout(min(self._idle_seconds, self._bounds.seconds - self._waited)):
                return await self._receive()
        except TimeoutError:
            raise TooSlow(
                f"The body stopped after {self._size:,} bytes, or did not arrive within {self._bounds.seconds:g} s.",
                remedy="Send it again without pauses; an upload can be resumed.",
            ) from None
        finally:
            self._waited += clock() - begun


def _too_large(bounds: BodyBounds) -> TooLarge:
    return TooLarge(f"The body takes more than the {bounds.size:,} bytes it may.", remedy=bounds.remedy)
