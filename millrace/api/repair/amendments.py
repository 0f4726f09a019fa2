"""Corrected rows in place of rejected ones. The rows that a file replaces are found before its import begins, and the op that
begins it claims exactly these. Until then nothing is claimed; of two files for one row, the log lets one begin."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from pyroaring import BitMap64

from millrace.api.bookkeeping import surely
from millrace.api.jobs.rejected_rows import Choice, RejectedRows
from millrace.api.repair.corrected import MOST_CORRECTED_BYTES, CorrectedFile, CorrectedReader
from millrace.api.repair.filled_rows import GivenRow, filled_rows
from millrace.api.repair.row_matching import AS_FILE, MatchedRows, keys_of_rejected, match_keys, match_numbers
from millrace.api.uploads.session import Session, UploadServices
from millrace.api.uploads.sessions import Sessions
from millrace.control.claims import bitmap_of
from millrace.formats.spool import Spool
from millrace.model.content import FileMark
from millrace.model.errors import Clash, Invalid, Refused, TooLarge
from millrace.model.formats import JSON_LINES
from millrace.model.imports import AMEND, Import
from millrace.model.table import Definition
from millrace.store.records import find_by_key, known_import


@dataclass(frozen=True, slots=True)
class Asked:
    """How an amendment is asked for. `add`: rows that replace no rejected row are imported as well."""

    rule: str | None = None
    span: str | None = None
    add: bool = False
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Amended:
    """What an amendment closes: `closed` of the `of` rows that were open."""

    import_id: str
    closed: int
    of: int
    added: int

    def to_dict(self) -> dict[str, Any]:
        return {"closed": self.closed, "of": self.of, "open": self.of - self.closed, "added": self.added}


class Amendments:
    def __init__(self, rejected: RejectedRows, sessions: Sessions, services: UploadServices) -> None:
        self._rejected = rejected
        self._sessions = sessions
        self._services = services

    async def amend(
        self, origin_id: str, pieces: AsyncIterator[bytes], options: dict[str, Any], asked: Asked
    ) -> Amended:
        """Imports the file that the pieces make."""
        origin, definition = await self._find(origin_id)
        with self._sessions.receiving(origin.tenant):
            spool = await surely(self._services.exchange.places.spool)
            with Spool(spool) as sent:
                mark = await _take(pieces, sent)
                # Unless the caller says otherwise, the file is written as the original one was.
                said = {**await surely(self._rejected.dialect_of, origin), **options}
                return await self._import(origin, definition, sent, spool, mark, said, asked)

    async def amend_rows(self, origin_id: str, rows: list[GivenRow], asked: Asked) -> Amended:
        """Imports the rejected rows with the given values in place of their own."""
        origin, definition = await self._find(origin_id)
        chosen = Choice(rows=frozenset(row.row for row in rows))
        lines = await asyncio.to_thread(filled_rows, self._rejected, origin, definition, chosen, rows)
        with self._sessions.receiving(origin.tenant):
            spool = await surely(self._services.exchange.places.spool)
            with Spool(spool) as sent:
                mark = await _take(_async(lines), sent)
                said = {"file_type": JSON_LINES.name}
                return await self._import(origin, definition, sent, spool, mark, said, asked)

    async def _find(self, origin_id: str) -> tuple[Import, Definition]:
        origin, definition = await asyncio.to_thread(self._rejected.find, origin_id)
        if not origin.is_over:
            raise Clash(f"Import {origin.id} is still {origin.state}.", remedy="Wait for its end.", code="not_over")
        return origin, definition

    async def _import(
        self,
        origin: Import,
        definition: Definition,
        sent: Spool,
        spool: Path,
        mark: FileMark,
        options: dict[str, Any],
        asked: Asked,
    ) -> Amended:
        with Spool(spool) as stripped:
            reader = CorrectedReader(definition, options, stripped, deletes=origin.deletes)
            bounds = self._services.decoder_bytes, self._services.decoders
            corrected = await asyncio.to_thread(reader.read, sent, spool, *bounds)
            # A request that comes again finds its rows closed, by itself.
            matched = MatchedRows(BitMap64(), 0)
            still_open = BitMap64()
            repeated = await self._is_repeated(origin, asked)
            if not repeated:
                try:
                    matched, still_open = await asyncio.to_thread(self._match, origin, definition, corrected, asked)
                except Refused:
                    # The first of them may have begun meanwhile.
                    if not (repeated := await self._is_repeated(origin, asked)):
                        raise
            import_id = await self._send(origin, corrected, mark, asked, None if repeated else matched.rows)
            if repeated:
                return await asyncio.to_thread(self._amended_before, origin, import_id, corrected.rows)
            return Amended(import_id, len(matched.rows), len(still_open), matched.added)

    def _amended_before(self, origin: Import, import_id: str, rows: int) -> Amended:
        closed = len(bitmap_of(known_import(self._services.store, import_id).options["rows"]))
        left = len(self._rejected.chosen(origin) - self._rejected.closed(origin.id).rows)
        return Amended(import_id, closed, left + closed, rows - closed)

    async def _is_repeated(self, origin: Import, asked: Asked) -> bool:
        return asked.key is not None and await asyncio.to_thread(self._is_known, origin.tenant, asked.key)

    def _is_known(self, tenant: str, key: str) -> bool:
        with self._services.store.read() as connection:
            return find_by_key(connection, tenant, key) is not None

    def _match(
        self, origin: Import, definition: Definition, corrected: CorrectedFile, asked: Asked
    ) -> tuple[MatchedRows, BitMap64]:
        choice = Choice(asked.rule)
        rejected, closed = self._rejected.chosen(origin, choice), self._rejected.closed(origin.id).rows
        if corrected.numbers is not None:
            return match_numbers(corrected.numbers, origin, rejected, closed, add=asked.add), rejected - closed
        if not definition.table.primary_key:
            raise Invalid(
                f"{origin.tenant}/{origin.table} has no primary key, and the file does not name rejected rows by number.",
                remedy=AS_FILE.format(origin.id),
                code="no_match",
            )
        open_rows = self._rejected.open_batches(origin, choice)
        keys = keys_of_rejected(open_rows, origin, definition, corrected.keys)
        return match_keys(corrected, origin, keys, add=asked.add), rejected - closed

    async def _send(
        self, origin: Import, corrected: CorrectedFile, mark: FileMark, asked: Asked, rows: BitMap64 | None
    ) -> str:
        admission = {
            "import_kind": AMEND,
            "of": origin.id,
            "rows": None if rows is None else b64encode(rows.serialize()).decode(),
            "span": asked.span,
            "digest": mark.digest,
        }
        target = origin.tenant, origin.table
        begun = await self._sessions.begin(*target, corrected.options, mark.length, asked.key, admission)
        if not isinstance(begun, Session):
            return begun.id
        async with begun.busy:
            session = await self._sessions.from_start(begun)
            if not isinstance(session, Session):
                return session.id
            # What is sent on is the file without its numbers.
            session.original = mark
            await session.take_whole(session.behind_known(_async(corrected.pieces()), mark.digest))
            return session.imp.id


async def _take(pieces: AsyncIterator[bytes], file: Spool) -> FileMark:
    digest, length = sha256(), 0
    async for piece in pieces:
        length += len(piece)
        if length > MOST_CORRECTED_BYTES:
            raise TooLarge(
                f"A file of corrected rows may have {MOST_CORRECTED_BYTES >> 20} MiB.",
                remedy="Split it, and amend the rows in several steps.",
            )
        digest.update(piece)
        await asyncio.to_thread(file.write, piece)
    await asyncio.to_thread(file.whole)
    return FileMark(length=length, digest=digest.hexdigest())


async def _async(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    left = iter(pieces)
    while (piece := await asyncio.to_thread(next, left, b"")) != b"":
        yield piece
