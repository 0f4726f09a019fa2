"""Uploads under way: bytes of a request in, an ended import out, and where a broken upload goes on.

While the server lives, a broken upload goes on where its bytes stopped; after a restart, behind the last confirmed chunk."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from sqlalchemy import select

from millrace.api.platform import Platform
from millrace.formats.cut import UploadOptions, open_cutter
from millrace.model.errors import Clash, Missing, Refused, Unavailable
from millrace.model.imports import DELETE, Import
from millrace.model.names import new_id
from millrace.model.ops import Applied
from millrace.model.ops.imports import BeginImport, EndImport, FailImport, ImportReceived
from millrace.model.ops.results import ImportStatus
from millrace.store import tables as t
from millrace.store.engine import upsert
from millrace.store.records import find_import
from millrace.upload.gateway import Resume, Upload

PIECE_BYTES = 1 << 20
REMEMBER_SECONDS = 0.5
ROOM_SECONDS = 0.05
T = TypeVar("T")


class Session:
    """One import that is being received."""

    def __init__(self, platform: Platform, imp: Import, length: int | None, upload: Upload) -> None:
        self._platform = platform
        self._loop = asyncio.get_running_loop()
        self._remembered = time.monotonic()
        self.imp = imp
        self.length = length
        self.upload = upload
        self.busy = asyncio.Lock()
        self.is_broken = False

    @property
    def offset(self) -> int:
        return self.upload.received

    async def take(self, pieces: AsyncIterator[bytes]) -> None:
        """Feeds the body of a request as it arrives, in pieces large enough to be worth a thread's turn.

        A slow upload is fed in smaller ones, so that it is seen to be alive."""
        rest = await self._take_most(pieces)
        if rest:
            await self._feed(rest)

    async def take_whole(self, pieces: AsyncIterator[bytes]) -> None:
        """The same for a body that is the rest of the file: its last piece and its end take one turn of a thread."""
        await self._finish(partial(self.upload.finish_with, await self._take_most(pieces)))

    async def _take_most(self, pieces: AsyncIterator[bytes]) -> bytes:
        """Feeds all but the last, unfinished piece, which is returned."""
        held: list[bytes] = []
        size = 0
        async for piece in pieces:
            held.append(piece)
            size += len(piece)
            await self._pause(self._platform.quotas.pause(self.imp.tenant, len(piece)))
            if size >= PIECE_BYTES or self._is_due():
                await self._feed(b"".join(held))
                held, size = [], 0
        return b"".join(held)

    async def _feed(self, piece: bytes) -> None:
        await self._turn(partial(self.upload.feed, piece))

    async def _turn(self, work: Callable[[], T]) -> T:
        """A turn of a thread, once there is room. However long Kafka makes it last, it is not the sender who is silent."""
        await self._wait_for_room()
        self._platform.at_work.add(self.imp.id)
        try:
            done = await self._work(work)
            self._platform.flight.sent(self.imp.tenant, self.imp.id, self.upload.sent_chunks)
            await self._remember_if_due()
            return done
        except Unavailable:
            # The sender may come again, and has the whole lease for it.
            await self._remember_if_due()
            raise
        finally:
            self._platform.at_work.discard(self.imp.id)

    async def _remember_if_due(self) -> None:
        if self._is_due():
            self._remembered = time.monotonic()
            await asyncio.to_thread(remember, self._platform, self.imp.id, self.length, self.upload.confirmed)

    async def _wait_for_room(self) -> None:
        """Until the tenant has fewer chunks in flight than its share; not in a thread, of which there are few."""
        while not self._platform.flight.has_room(self.imp.tenant):
            await self._pause(ROOM_SECONDS)

    async def _pause(self, seconds: float) -> None:
        """Reads no further for so long: the sender is slowed down by that, and the upload is seen to be alive."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            step = min(left, REMEMBER_SECONDS)
            await asyncio.sleep(step)
            self._platform.quotas.held(self.imp.tenant, step, self.imp.id)
            await self._remember_if_due()

    def _is_due(self) -> bool:
        return time.monotonic() - self._remembered > REMEMBER_SECONDS

    async def end(self) -> None:
        await self._finish(self.upload.finish_some)

    async def _finish(self, finish: Callable[[], Resume | None]) -> None:
        sent = await self._turn(finish)
        while sent is None:
            sent = await self._turn(self.upload.finish_some)
        self.upload.close()
        received = EndImport(
            self.imp.tenant,
            self.imp.id,
            chunks=sent.chunks,
            rows=sent.rows,
            bytes=sent.plain_bytes,
            written=self.upload.written,
        )
        await self._platform.applied(received)

    async def _work(self, work: Callable[[], T]) -> T:
        try:
            return await self._loop.run_in_executor(self._platform.uploads, work)
        except Refused as refusal:
            raise await self._give_up(refusal) from refusal
        except BaseException:
            # Some chunks may not have reached Kafka: the upload can only go on behind the last that did.
            self.is_broken = True
            raise

    async def _give_up(self, refusal: Refused) -> Refused:
        self.upload.close()
        if refusal.code != "stopped":
            return await _failed(self._platform, self.imp, refusal)
        refusal = await asyncio.to_thread(self._why_stopped, refusal)
        refusal.import_id = self.imp.id  # type: ignore[attr-defined]
        return refusal

    def _why_stopped(self, refusal: Refused) -> Refused:
        with self._platform.store.read() as connection:
            imp = find_import(connection, self.imp.id)
        if imp is None or imp.error is None:
            return refusal
        return Clash(f"{refusal.message} {imp.error['message']}", remedy=imp.error["remedy"], code="stopped")


class Sessions:
    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._open: dict[str, Session] = {}
        platform.listen(self._forget_ended)

    async def begin(
        self,
        tenant: str,
        table: str,
        options: dict[str, Any],
        length: int | None,
        key: str | None,
        admission: Mapping[str, Any] = MappingProxyType({}),
    ) -> Session | Import:
        """A session for a new import, or the import that the same key began before and that has all its bytes.

        `admission` says more about how it wants to be admitted: import_kind, span, wait, of, rows."""
        op = BeginImport(
            tenant, table, id=new_id("imp"), options=options, length=length, idempotency_key=key, **admission
        )
        async with self._platform.sealing.asked_for(tenant, op.id):
            begun = await self._platform.applied(op)
        if begun.import_id != op.id:
            self._platform.sealing.keyring.drop(tenant, op.id)
        imp = self._import(begun.import_id)
        if begun.repeated and not imp.accepts_chunks:
            return imp
        known = self._open.get(imp.id)
        return known if known is not None and not known.is_broken else await self._start(imp, length, None)

    async def resume(self, import_id: str) -> Session:
        """The session of an upload that broke off, if the import still takes chunks."""
        known = self._open.get(import_id)
        if known is not None and not known.is_broken:
            return known
        imp = self._import(import_id)
        if not imp.accepts_chunks:
            raise Clash(f"Import {import_id} is {imp.state}.", remedy="Begin a new import.", code="not_open")
        with self._platform.store.read() as connection:
            row = connection.execute(select(t.uploads).where(t.uploads.c.import_id == import_id)).first()
        confirmed = Resume(**row.confirmed) if row is not None and row.confirmed else None
        # Without the cutter's state the file must come again from its start; chunks already there are not doubled.
        resumable = confirmed if confirmed and confirmed.cutter else None
        return await self._start(imp, None if row is None else row.length, resumable)

    async def from_start(self, session: Session) -> Session | Import:
        """A session that has received nothing, for a file that comes whole; the import itself if it takes no chunks now."""
        if session.offset == 0:
            return session
        imp = self._import(session.imp.id)
        if not imp.accepts_chunks:
            return imp
        session.upload.close()
        return await self._start(imp, session.length, None)

    async def _start(self, imp: Import, length: int | None, confirmed: Resume | None) -> Session:
        definition = await asyncio.to_thread(self._platform.exchange.definitions.read, imp.definition)
        # What became of the import since it was admitted is no matter of how its file is read.
        said = {name: value for name, value in imp.options.items() if name not in ("rows", "waived")}
        options = UploadOptions(**said, deletes=imp.kind == DELETE)
        platform = self._platform
        spool = platform.exchange.places.spool()
        try:
            cutter = open_cutter(definition, options, spool_dir=spool, resume=confirmed.cutter if confirmed else None)
        except Refused as refusal:
            raise await _failed(platform, imp, refusal) from refusal
        seal = await platform.sealing.seal_of(imp)
        upload = Upload(
            imp, cutter, platform.appender, platform.raw_partitions, platform.closed.__contains__, confirmed, seal
        )
        session = Session(platform, imp, length, upload)
        self._open[imp.id] = session
        return session

    async def keep(self, session: Session) -> None:
        """From now on the upload can be resumed, also after a restart of the server."""
        await asyncio.to_thread(remember, self._platform, session.imp.id, session.length, session.upload.confirmed)

    def _import(self, import_id: str) -> Import:
        with self._platform.store.read() as connection:
            imp = find_import(connection, import_id)
        if imp is None:
            raise Missing(f"There is no import {import_id}.", code="no_import")
        return imp

    def _forget_ended(self, applied: list[Applied]) -> None:
        for one in applied:
            if isinstance(one.result, ImportReceived | ImportStatus):
                self._open.pop(one.result.import_id, None)


async def _failed(platform: Platform, imp: Import, refusal: Refused) -> Refused:
    """The import fails with the reason that its uploader is told."""
    error = {"code": refusal.code, "message": refusal.message, "remedy": refusal.remedy}
    await platform.applied(FailImport(imp.tenant, imp.id, error=error))
    refusal.import_id = imp.id  # type: ignore[attr-defined]
    return refusal


def remember(platform: Platform, import_id: str, length: int | None, confirmed: Resume | None) -> None:
    """Keeps the resume point and renews the upload's lease."""
    row = {"import_id": import_id, "length": length, "confirmed": asdict(confirmed) if confirmed else None}
    with platform.store.write() as connection:
        upsert(connection, t.uploads, {**row, "seen_us": time.time_ns() // 1000})
