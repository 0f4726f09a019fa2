"""A relay on loopback between a Kafka client and the brokers of somebody else's cluster.

The client of Kafka resolves names itself, and connects to every broker that the cluster advertises. So it knows only ports of
ours: one for each broker. Behind each, the relay resolves the broker's name, judges its address and connects there, with TLS
made out to the name. Answers that name brokers are rewritten; everything else is passed on as it is."""

import asyncio
import ssl
import struct
from collections import deque

from millrace.model.errors import MillraceError, Unavailable
from millrace.outbound.addresses import Judged
from millrace.outbound.loopback import (
    HOST,
    PIECE_BYTES,
    Listener,
    Streams,
    both,
    connect,
    event_loop,
    listening,
)
from millrace.wire.external_frames import (
    API_VERSIONS,
    KNOWN,
    METADATA,
    REWRITTEN,
    NotKafka,
    Place,
    capped,
    places_in,
    rewritten,
)

MOST_PLACES = 1000
# Answers that are read as a whole. The others are passed on piece by piece.
MOST_BYTES = 16 << 20
_REQUEST, _ANSWER = struct.Struct(">ihhi"), struct.Struct(">ii")


class Relay:
    """`tls`: how brokers are encrypted and whose certificates are trusted."""

    def __init__(self, judged: Judged, tls: ssl.SSLContext | None = None) -> None:
        self._judged = judged
        self._tls = tls
        self._listeners: dict[Place, Listener] = {}
        # The brokers that the cluster advertised last and that must not be connected to.
        self._refused: list[MillraceError] = []
        # Brokers that did not answer since their last connection failed.
        self._failed: dict[Place, MillraceError] = {}
        self._open: set[asyncio.StreamWriter] = set()

    def address(self, host: str, port: int) -> str:
        """Where the client finds this broker."""
        placed = asyncio.run_coroutine_threadsafe(self._placed((host, port)), event_loop()).result()
        return f"{HOST}:{placed}"

    def check(self) -> None:
        """Raises if the cluster advertises a broker that must not be connected to."""
        for refusal in self._refused:
            raise refusal

    def explain(self) -> None:
        """Raises the reason why a broker could not be connected to, if there is one."""
        self.check()
        for failure in list(self._failed.values()):
            raise failure

    def close(self) -> None:
        event_loop().call_soon_threadsafe(self._close)

    def _close(self) -> None:
        for listener in self._listeners.values():
            listener.close()
        for writer in self._open:
            writer.close()

    async def _placed(self, place: Place) -> int:
        known = self._listeners.get(place)
        if known is not None:
            return known.port
        if len(self._listeners) >= MOST_PLACES:
            raise NotKafka(f"The cluster names more than {MOST_PLACES} brokers.")

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(place, (reader, writer))

        listener = await listening(serve)
        # Another connection may have been quicker.
        kept = self._listeners.setdefault(place, listener)
        if kept is not listener:
            listener.close()
        return kept.port

    async def _serve(self, place: Place, client: Streams) -> None:
        try:
            broker = await connect(self._judged, *place, self._tls)
        except (MillraceError, OSError) as failed:
            self._failed[place] = failed if isinstance(failed, MillraceError) else _unreachable(place, failed)
            return
        self._open.update((client[1], broker[1]))
        try:
            await _RelayedConnection(self, place, client, broker).run()
        except NotKafka as wrong:
            what = f"{place[0]}:{place[1]} does not answer as Kafka does: {wrong}"
            self._failed[place] = Unavailable(what, remedy="Check host, port and tls.", code="not_kafka")
        finally:
            self._open.difference_update((client[1], broker[1]))
            broker[1].close()

    def answered(self, place: Place) -> None:
        self._failed.pop(place, None)

    async def moved(self, api: int, version: int, body: bytes) -> bytes:
        """The answer with our ports in it. Brokers are judged here as well as at each connection, so that a cluster which
        advertises a forbidden one is reported at once."""
        places = set(places_in(api, version, body))
        ports = {place: await self._placed(place) for place in places}
        if api == METADATA:
            found = await asyncio.gather(*(self._refusal(host) for host, _ in places))
            self._refused = [refusal for refusal in found if refusal is not None]
        return rewritten(api, version, body, lambda place: (HOST, ports[place]))

    async def _refusal(self, host: str) -> MillraceError | None:
        try:
            await asyncio.to_thread(self._judged, host)
        except MillraceError as refusal:
            return refusal
        return None


class _RelayedConnection:
    """One connection of the client, and ours to the broker."""

    def __init__(self, relay: Relay, place: Place, client: Streams, broker: Streams) -> None:
        self._relay = relay
        self._place = place
        self._client, self._to_client = client
        self._broker, self._to_broker = broker
        # What was asked and is not answered yet. Kafka answers in order.
        self._asked: deque[tuple[int, int, int]] = deque()

    async def run(self) -> None:
        await both(self._requests(), self._answers())

    async def _requests(self) -> None:
        while True:
            head = await self._client.readexactly(_REQUEST.size)
            size, api, version, number = _REQUEST.unpack(head)
            if version > KNOWN.get(api, -1) or size < _REQUEST.size - 4:
                raise ConnectionError(f"Version {version} of request {api} is not passed on.")
            self._asked.append((number, api, version))
            self._to_broker.write(head)
            await _copy(self._client, self._to_broker, size - _REQUEST.size + 4)

    async def _answers(self) -> None:
        while True:
            head = await self._broker.readexactly(_ANSWER.size)
            size, number = _ANSWER.unpack(head)
            if not self._asked or self._asked[0][0] != number or size < 4:
                raise NotKafka("An answer belongs to no request.")
            _, api, version = self._asked.popleft()
            self._relay.answered(self._place)
            if api not in REWRITTEN:
                self._to_client.write(head)
                await _copy(self._broker, self._to_client, size - 4)
                continue
            if size > MOST_BYTES:
                raise NotKafka(f"An answer has {size} bytes.")
            body = await self._broker.readexactly(size - 4)
            if api == API_VERSIONS:
                body = capped(version, body)
            else:
                body = await self._relay.moved(api, version, body)
            self._to_client.write(_ANSWER.pack(len(body) + 4, number) + body)
            await self._to_client.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int) -> None:
    while size:
        piece = await reader.read(min(size, PIECE_BYTES))
        if not piece:
            raise EOFError
        size -= len(piece)
        writer.write(piece)
        await writer.drain()


def _unreachable(place: Place, failed: OSError) -> Unavailable:
    reason = str(failed).rstrip(".") or type(failed).__name__
    return Unavailable(
        f"{place[0]}:{place[1]} takes no connection: {reason}.",
        remedy="Check host, port and tls.",
        code="no_connection",
    )
