"""One upload under way: the bytes of requests in, an ended import out.

While the server lives, a broken upload goes on where its bytes stopped; after a restart, behind the last confirmed chunk."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TypeVar

from millrace.api.admission import Admission
from millrace.api.bookkeeping import surely
from millrace.api.op_log import OpLog
from millrace.api.sealing import Sealing
from millrace.api.uploads.in_flight import InFlight
from millrace.auth.quotas import Quotas
from millrace.exchange.mailboxes import Exchange
from millrace.formats.apart import MEMORY_BYTES
from millrace.model.content import FileMark
from millrace.model.errors import Clash, Exceeded, Invalid, Overloaded, Refused, Unavailable
from millrace.model.imports import Import
from millrace.model.ops.imports import EndImport, FailImport
from millrace.model.ops.results import Refusal
from millrace.settings import LimitSettings
from millrace.store import tables as t
from millrace.store.engine import ControlStore, upsert
from millrace.store.records import find_import
from millrace.turns import ASKING
from millrace.upload.digest import RunningDigest
from millrace.upload.gateway import Resume, Upload
from millrace.wire.client import Appender

PIECE_BYTES = 1 << 20
# Pieces that are smaller, on average, cost more one by one than to be put together.
TINY_BYTES = 16 << 10
REMEMBER_SECONDS = 0.5
ROOM_SECONDS = 0.05
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UploadServices:
    """What the uploads of a server use."""

    store: ControlStore
    exchange: Exchange
    op_log: OpLog
    admission: Admission
    quotas: Quotas
    sealing: Sealing
    in_flight: InFlight
    appender: Appender
    raw_partitions: int
    decoder_bytes: int = MEMORY_BYTES
    uploads: int = LimitSettings().uploads
    decoders: int = LimitSettings().decoders


class Session:
    """One import that is being received."""

    def __init__(self, services: UploadServices, imp: Import, length: int | None, upload: Upload) -> None:
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._remembered = time.monotonic()
        self.imp = imp
        self.length = length
        # The digest that the sender says the file has.
        self.declared = FileMark.of(imp.options).digest
        # What the sender sent, if the bytes that are fed were made from it.
        self.original: FileMark | None = None
        self.upload = upload
        self.busy = asyncio.Lock()
        self.is_broken = False
        # All of it was received. Those who waited for that bring nothing new.
        self.has_ended = False

    @property
    def offset(self) -> int:
        return self.upload.received

    async def take(self, pieces: AsyncIterator[bytes]) -> None:
        """Feeds the body of a request as it arrives, in pieces large enough to be worth a thread's turn.

        A slow upload is fed in smaller ones, so that it is seen to be alive."""
        rest = await self._take_most(pieces)
        if rest:
            await self._turn(partial(self.upload.feed, *rest))

    async def take_whole(self, pieces: AsyncIterator[bytes]) -> None:
        """The same for a body that is the rest of the file: its last piece and its end take one turn of a thread."""
        await self._finish(partial(self.upload.finish_with, *await self._take_most(pieces)))

    async def _take_most(self, pieces: AsyncIterator[bytes]) -> list[bytes]:
        """Feeds all but the last pieces, which are too few for a turn, and returns them."""
        held: list[bytes] = []
        size = 0
        async for piece in pieces:
            held.append(piece)
            size += len(piece)
            await self._services.quotas.prepare(self.imp.tenant)
            await self._pause(self._services.quotas.pause(self.imp.tenant, len(piece)))
            if size >= PIECE_BYTES or self._is_due():
                await self._turn(partial(self.upload.feed, *_not_tiny(held)))
                held, size = [], 0
        return _not_tiny(held)

    async def _turn(self, work: Callable[[], T]) -> T:
        """A turn of a thread, once there is room. Meanwhile the upload counts as alive, even if Kafka is slow."""
        # Until the tenant has fewer chunks in flight than its share. Not in a thread: there are few of them.
        await self._services.quotas.prepare(self.imp.tenant)
        while not self._services.in_flight.chunks.has_room(self.imp.tenant):
            await self._pause(ROOM_SECONDS)
        self._services.in_flight.at_work.add(self.imp.id)
        try:
            done = await self._work(work)
            self._services.in_flight.chunks.sent(self.imp.tenant, self.imp.id, self.upload.sent_chunks)
            await self._remember_if_due()
            return done
        except (Unavailable, Exceeded, Overloaded):
            # The sender may come again, and has the whole lease for it.
            await self._remember_if_due()
            raise
        finally:
            self._services.in_flight.at_work.discard(self.imp.id)

    async def _remember_if_due(self) -> None:
        if self._is_due():
            self._remembered = time.monotonic()
            await surely(self.remember)

    def remember(self) -> None:
        """Keeps the resume point, so that the upload can go on after a restart of the server, and renews its lease. Also how
        the file begins, so that another file does not go on in its place."""
        confirmed = asdict(self.upload.confirmed) if self.upload.confirmed else None
        start = self.upload.digest.longest_start
        if confirmed is not None and start is not None:
            confirmed["start"] = asdict(start)
        row = {"import_id": self.imp.id, "length": self.length, "confirmed": confirmed}
        with self._services.store.write() as connection:
            upsert(connection, t.uploads, {**row, "seen_us": time.time_ns() // 1000})

    async def _pause(self, seconds: float) -> None:
        """Stops reading for this time, which slows the sender down. The upload stays alive."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            step = min(left, REMEMBER_SECONDS)
            await asyncio.sleep(step)
            self._services.quotas.record_throttle(self.imp.tenant, step, self.imp.id)
            await self._remember_if_due()

    def _is_due(self) -> bool:
        return time.monotonic() - self._remembered > REMEMBER_SECONDS

    async def end(self) -> None:
        await self._finish(self.upload.finish_some)

    async def behind_known(self, pieces: AsyncIterator[bytes], digest: str | None) -> AsyncIterator[bytes]:
        """A file that comes from its start again: what is behind the bytes that are here already. Refused, without harm to
        the upload, if those differ. Only a file that is not refused may say which digest the whole has."""
        known = RunningDigest(self.imp.id, known=self.upload.digest.start)
        async for piece in pieces:
            missing = self.offset - known.length
            if missing > 0:
                known.update(piece[:missing])
                await self._remember_if_due()
            if len(piece) > missing:
                self.declared = digest or self.declared
                yield piece[max(missing, 0) :]
                # From here on the offset grows with what is fed.
                async for later in pieces:
                    yield later
                return
        known.finish()
        self.declared = digest or self.declared

    async def _finish(self, finish: Callable[[], Resume | None]) -> None:
        sent = await self._turn(finish)
        while sent is None:
            sent = await self._turn(self.upload.finish_some)
        await surely(self.upload.close)
        mark = self.original or self.upload.digest.mark
        if self.declared is not None and mark.digest not in (None, self.declared):
            raise await fail_import(self._services.op_log, self.imp, _not_as_declared(self.declared, mark.digest))
        received = EndImport(
            self.imp.tenant,
            self.imp.id,
            chunks=sent.chunks,
            rows=sent.rows,
            bytes=sent.plain_bytes,
            written=self.upload.written,
            repeated_headers=self.upload.repeated_headers,
            content=mark.kept(),
        )
        self.has_ended = True
        await self._services.op_log.applied(received)

    async def _work(self, work: Callable[[], T]) -> T:
        # The thread counts for the tenant whose import it is, also if an operator sends it.
        said = ASKING.set(self.imp.tenant)
        try:
            return await self._loop.run_in_executor(self._services.in_flight.threads, work)
        except Exceeded:
            # Nothing is wrong with the file: its sender may come again.
            self.is_broken = True
            raise
        except Refused as refusal:
            raise await self._give_up(refusal) from refusal
        except BaseException:
            # Some chunks may not have reached Kafka: the upload can only go on behind the last that did.
            self.is_broken = True
            raise
        finally:
            ASKING.reset(said)

    async def _give_up(self, refusal: Refused) -> Refused:
        await surely(self.upload.close)
        if refusal.code != "stopped":
            return await fail_import(self._services.op_log, self.imp, refusal)
        refusal = await surely(self._why_stopped, refusal)
        refusal.import_id = self.imp.id  # type: ignore[attr-defined]
        return refusal

    def _why_stopped(self, refusal: Refused) -> Refused:
        with self._services.store.read() as connection:
            imp = find_import(connection, self.imp.id)
        if imp is None or imp.error is None:
            return refusal
        return Clash(f"{refusal.message} {imp.error['message']}", remedy=imp.error["remedy"], code="stopped")


def _not_as_declared(declared: str, digest: str | None) -> Invalid:
    return Invalid(
        f"The file that arrived has the SHA-256 {digest}; its sender announced {declared}.",
        remedy="Send the file again with a new key. It changed while it was sent, or parts of two files arrived.",
        code="digest_differs",
    )


async def fail_import(op_log: OpLog, imp: Import, refusal: Refused) -> Refused:
    """The import fails with the reason that its uploader is told."""
    await op_log.applied(FailImport(imp.tenant, imp.id, error=Refusal.of(refusal).reason))
    refusal.import_id = imp.id  # type: ignore[attr-defined]
    return refusal


def _not_tiny(pieces: list[bytes]) -> list[bytes]:
    """The pieces as they are, because a copy of each byte costs more than some calls; put together if they are tiny."""
    size = sum(map(len, pieces))
    return pieces if size >= TINY_BYTES * len(pieces) else [b"".join(pieces)]
