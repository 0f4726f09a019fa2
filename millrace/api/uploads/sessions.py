"""Uploads under way: begun, resumed, begun again from the start, forgotten when their import has ended."""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any
from weakref import WeakValueDictionary

from sqlalchemy import bindparam, select

from millrace.api.bookkeeping import surely
from millrace.api.uploads.session import Session, UploadServices, fail_import
from millrace.auth.slots import SlotLimit, TenantSlots
from millrace.formats.apart import open_apart
from millrace.formats.cut import Cutter, UploadOptions
from millrace.model.content import CONTENT, FileMark, other_content
from millrace.model.errors import Clash, Exceeded, Refused
from millrace.model.imports import Import
from millrace.model.names import new_id
from millrace.model.ops import Applied
from millrace.model.ops.imports import BeginImport, ImportReceived
from millrace.model.ops.results import ImportStatus
from millrace.store import tables as t
from millrace.store.records import known_import
from millrace.upload.digest import KnownStart
from millrace.upload.gateway import Resume, Upload

# Options that say what became of an import since it was asked for, not how its file is read.
_LATER = ("rows", "waived", "deletes", CONTENT)


_KEPT = select(t.uploads).where(t.uploads.c.import_id == bindparam("of_import"))


def _resume_point(row: Any) -> tuple[Resume | None, KnownStart | None]:
    """What is kept of an upload: where it goes on, and how its file begins."""
    kept = {} if row is None or not row.confirmed else dict(row.confirmed)
    start = kept.pop("start", None)
    return Resume(**kept) if kept else None, KnownStart(**start) if start else None


class Sessions:
    def __init__(self, services: UploadServices) -> None:
        self._services = services
        self._open: dict[str, Session] = {}
        self._starting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._receiving = TenantSlots(SlotLimit("uploads", "uploads at once", services.uploads))

    def receiving(self, tenant: str) -> AbstractContextManager[None]:
        """Within the block a request brings a file of the tenant. Refused if too many do."""
        return self._receiving.one_more(tenant)

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

        `admission` says more about how it wants to be admitted: import_kind, span, wait, of, rows, digest."""
        op = BeginImport(
            tenant, table, id=new_id("imp"), options=options, length=length, idempotency_key=key, **admission
        )
        await self._services.admission.refuse_rows(op)
        await self._services.in_flight.turn_to_begin(tenant, op.id)
        try:
            async with self._services.sealing.asked_for(tenant, op.id):
                begun = await self._services.op_log.applied(op)
        except Refused:
            self._services.in_flight.began_none(op.id)
            raise
        if begun.import_id != op.id:
            self._services.in_flight.began_none(op.id)
            await self._services.sealing.drop_unused(tenant, op.id)
        imp = await surely(known_import, self._services.store, begun.import_id)
        if begun.repeated and not imp.accepts_chunks:
            return imp
        session = await self._only_session(imp, length, is_new=not begun.repeated)
        if not begun.repeated and isinstance(session, Session):
            session.declared = op.digest
        return session

    async def _only_session(self, imp: Import, length: int | None, *, is_new: bool) -> Session | Import:
        """Requests with one key that come at the same time share a session, and so take turns. The import itself if another
        request has brought all of it meanwhile."""
        async with self._starting.setdefault(imp.id, asyncio.Lock()):
            known = self._open.get(imp.id)
            if known is not None and not known.is_broken:
                return known
            if not is_new:
                imp = await surely(known_import, self._services.store, imp.id)
            return await self._start(imp, length, None) if imp.accepts_chunks else imp

    async def resume(self, import_id: str) -> Session:
        """The session of an upload that broke off, if the import still takes chunks. Requests that come at the same time
        share it."""
        async with self._starting.setdefault(import_id, asyncio.Lock()):
            known = self._open.get(import_id)
            return known if known is not None and not known.is_broken else await self._resumed(import_id)

    async def _resumed(self, import_id: str) -> Session:
        imp = await asyncio.to_thread(known_import, self._services.store, import_id)
        if not imp.accepts_chunks:
            raise Clash(f"Import {import_id} is {imp.state}.", remedy="Begin a new import.", code="not_open")
        row = await asyncio.to_thread(self._kept, import_id)
        confirmed, _ = _resume_point(row)
        # Without the cutter's state the file must come again from its start; chunks already there are not doubled.
        resumable = confirmed if confirmed and confirmed.cutter else None
        return await self._start(imp, None if row is None else row.length, resumable)

    async def from_start(self, session: Session) -> Session | Import:
        """A session for a file that comes whole: `behind_known` passes over what it has. The import itself if it takes no
        chunks now."""
        if session.offset == 0 and not session.has_ended:
            return session
        imp = await asyncio.to_thread(known_import, self._services.store, session.imp.id)
        if not imp.accepts_chunks:
            return imp
        if not session.is_broken and session.upload.digest.start is not None:
            return session
        await surely(session.upload.close)
        fresh = await self._start(imp, session.length, None)
        # Whoever asks for it waits for the request that holds the other one.
        fresh.busy = session.busy
        return fresh

    async def refuse_unlike(self, import_id: str, mark: FileMark) -> None:
        """Refuses what was read of a request that came again, if the import brought something else."""
        imp = await surely(known_import, self._services.store, import_id)
        difference = FileMark.of(imp.options).difference(mark)
        if difference is not None:
            raise other_content(import_id, difference)

    async def _start(self, imp: Import, length: int | None, confirmed: Resume | None) -> Session:
        # The import is admitted: from here on only its file may be refused.
        services = self._services
        try:
            seal = await services.sealing.seal_of(imp)
            cutter, known = await surely(self._opened, imp, confirmed)
        except Exceeded:
            # Another time there may be room: nothing is wrong with the file.
            raise
        except Refused as refusal:
            raise await fail_import(services.op_log, imp, refusal) from refusal
        upload = Upload(
            imp,
            cutter,
            services.appender,
            services.raw_partitions,
            services.in_flight.stopped.__contains__,
            confirmed,
            seal,
            known,
        )
        session = Session(services, imp, length, upload)
        self._open[imp.id] = session
        return session

    def _opened(self, imp: Import, confirmed: Resume | None) -> tuple[Cutter, KnownStart | None]:
        """What cuts its file; and how the file began, if a request brought a part of it before."""
        services = self._services
        known = None if confirmed else _resume_point(self._kept(imp.id))[1]
        said = {name: value for name, value in imp.options.items() if name not in _LATER}
        cutter = open_apart(
            services.exchange.definitions.read(imp.definition),
            UploadOptions(**said, deletes=imp.deletes),
            resume=confirmed.cutter if confirmed else None,
            spool_dir=services.exchange.places.spool(),
            memory_bytes=services.decoder_bytes,
            most_of_tenant=services.decoders,
        )
        return cutter, known

    def _kept(self, import_id: str) -> Any:
        with self._services.store.read() as connection:
            return connection.execute(_KEPT, {"of_import": import_id}).first()

    def on_applied(self, applied: list[Applied]) -> None:
        """Runs in the controller's thread."""
        for one in applied:
            if isinstance(one.result, ImportReceived | ImportStatus):
                self._open.pop(one.result.import_id, None)
