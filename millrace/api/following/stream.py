"""The answer of the event stream: server-sent events until one side ends it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

SEND_SECONDS = 30.0
STILL_HERE = b": still here\n\n"


class EventStream(Response):
    media_type = "text/event-stream"

    def __init__(self, frames: AsyncGenerator[bytes]) -> None:
        super().__init__(headers={"Cache-Control": "no-store"})
        del self.headers["content-length"]
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        """A connection that takes nothing for too long is dropped."""
        with suppress(TimeoutError):
            async with aclosing(self._frames) as frames:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                async for frame in frames:
                    await _pass_on(send, frame or STILL_HERE)
            await _pass_on(send, b"", more_body=False)


async def _pass_on(send: Send, body: bytes, *, more_body: bool = True) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        await send({"type": "http.response.body", "body": body, "more_body": more_body})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
