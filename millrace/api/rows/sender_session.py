"""One connection that sends rows: frames of numbered rows in; acknowledgements, rejected rows and ends out.

Each connection begins behind the last row that the log holds of its sender. So no row is lost and none is repeated, however
the connection before it ended."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import orjson
from starlette.websockets import WebSocket, WebSocketDisconnect

from millrace.api.problems import problem_of
from millrace.api.rows.append_result import counts, rejected_pages
from millrace.api.rows.endings import Ended
from millrace.api.rows.senders import Senders
from millrace.model.errors import Clash, MillraceError
from millrace.model.frames import OUT_OF_STEP, WINDOW_BYTES, count_rows, unpack_frame
from millrace.upload.batch import AppendKey, BatchPart, Placement

# The appends of one connection that have ended, or will, and that it has not been told of.
MOST_UNTOLD = 1000
TOKEN_SECONDS = 2.0
FAREWELL_SECONDS = 5.0
CLOSED_REFUSED, CLOSED_BROKEN = 1008, 1011

Frame = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _End:
    """An append has ended. The client has not been told yet what became of its rows."""

    part: BatchPart
    import_id: str
    ended: Ended


class SenderSession:
    """`check_token` raises when the caller's token has been revoked or has expired."""

    wants_end = True
    digest = None

    def __init__(
        self, senders: Senders, socket: WebSocket, append_key: AppendKey, sender: str, check_token: Callable[[], object]
    ) -> None:
        self.sender = sender
        self._senders = senders
        self._socket = socket
        self._append_key = append_key
        self._check_token = check_token
        self._unacknowledged = 0
        self._news: asyncio.Queue[Frame | _End] = asyncio.Queue()
        self._untold: set[asyncio.Future[Ended]] = set()
        self._moved = asyncio.Event()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def serve(self) -> None:
        """Until one side ends the connection."""
        try:
            async with self._senders.exclusive(self._append_key, self.sender, self._leave_to_another):
                await self._work()
        except WebSocketDisconnect:
            return
        except MillraceError as error:
            await self._say_farewell(error)

    def placed(self, part: BatchPart, placement: Placement) -> None:
        self._unacknowledged -= len(part.body)
        self._moved.set()
        if self._over.done():
            return
        numbers = {"first": part.first_seq, "seq": part.last_seq, "row": part.first_row}
        place = {"import": placement.import_id, "version": placement.version}
        self._news.put_nowait({"type": "ack", **numbers, **place})
        ended = self._senders.appends.endings.ended(placement.import_id)
        self._untold.add(ended)
        ended.add_done_callback(partial(self._on_end, replace(part, body=b""), placement.import_id))

    def failed(self, error: MillraceError) -> None:
        if not self._over.done():
            self._over.set_exception(error)

    def _on_end(self, part: BatchPart, import_id: str, ended: "asyncio.Future[Ended]") -> None:
        self._untold.discard(ended)
        if not ended.cancelled():
            self._news.put_nowait(_End(part, import_id, ended.result()))

    def _leave_to_another(self) -> None:
        self.failed(
            Clash(
                f"Another connection has opened sender {self.sender!r}.",
                remedy="Give each connection a sender of its own.",
                code="taken_over",
            )
        )

    async def _work(self) -> None:
        tasks = [asyncio.create_task(part()) for part in (self._read, self._write, self._watch_token)]
        try:
            done, _ = await asyncio.wait({*tasks, self._over}, return_when=asyncio.FIRST_COMPLETED)
            for finished in done:
                finished.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._leave()

    def _leave(self) -> None:
        """Drops what has not been sent: the next connection is told where to go on."""
        self._senders.gatherer.forget(self._append_key, self)
        if self._over.done():
            # Nobody asks for the reason if the client has left by itself.
            self._over.exception()
        else:
            self._over.set_result(None)
        for ended in list(self._untold):
            ended.cancel()

    async def _read(self) -> None:
        opened = await self._senders.appends.open_sender(self._append_key, self.sender)
        following = opened.seq + 1
        self._news.put_nowait({"type": "ready", "stream": self.sender, "seq": opened.seq})
        while True:
            await self._room_to_read()
            following = await self._take(await self._frame(), following)

    async def _watch_token(self) -> None:
        """Also while the client sends nothing: it is still told what becomes of its rows."""
        while True:
            await asyncio.sleep(TOKEN_SECONDS)
            await asyncio.to_thread(self._check_token)

    async def _room_to_read(self) -> None:
        """Reads nothing from a client that has too much unacknowledged, or that does not read its answers."""
        while self._unacknowledged >= WINDOW_BYTES or len(self._untold) + self._news.qsize() >= MOST_UNTOLD:
            self._moved.clear()
            await self._moved.wait()

    async def _frame(self) -> bytes:
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        frame: bytes | None = message.get("bytes")
        return message["text"].encode() if frame is None else frame

    async def _take(self, frame: bytes, following: int) -> int:
        """The number of the row that comes next."""
        first, rows = unpack_frame(frame)
        if first != following:
            raise Clash(
                f"A frame begins with row {first}; row {following} comes next.",
                remedy="Connect again and go on behind the number that `ready` tells.",
                code=OUT_OF_STEP,
            )
        number = count_rows(rows)
        if number:
            self._unacknowledged += len(rows)
            await self._senders.pace(self._append_key.tenant, len(rows))
            await self._senders.gatherer.add(self._append_key, self, first, number, rows)
        return first + number

    async def _write(self) -> None:
        while True:
            await self._tell(await self._news.get())
            self._moved.set()

    async def _tell(self, news: Frame | _End) -> None:
        if not isinstance(news, _End):
            await self._send(news)
            return
        part, listed = news.part, 0
        if news.ended.counts.rejected:
            async for page in rejected_pages(self._senders.errors(self._append_key), news.import_id, part):
                listed += len(page)
                rows = [{"seq": part.first_seq + row["row"] - part.first_row, **row} for row in page]
                await self._send({"type": "rejected", "import": news.import_id, "rows": rows})
        end = {"state": news.ended.state, **counts(part, news.ended, listed), "error": news.ended.error}
        await self._send({"type": "end", "import": news.import_id, "seq": part.last_seq, **end})

    async def _send(self, frame: Frame) -> None:
        await self._socket.send_text(orjson.dumps(frame).decode())

    async def _say_farewell(self, error: MillraceError) -> None:
        """Sends what is known already, then why the connection ends."""
        response = problem_of(error)
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                while not self._news.empty():
                    await self._tell(self._news.get_nowait())
                await self._send({"type": "error", "problem": orjson.loads(response.body)})
                await self._socket.close(CLOSED_BROKEN if response.status_code >= 500 else CLOSED_REFUSED, error.code)
        except (TimeoutError, RuntimeError, WebSocketDisconnect):
            # The client is gone. The next connection is told where to go on.
            return
