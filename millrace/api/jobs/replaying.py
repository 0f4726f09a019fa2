"""Rejected rows on their way back: replayed as they were, amended by corrected ones, or discarded.

A replay sends one chunk per original chunk, under the original versions. It can be sent again after a crash: chunks have the
same identity, and what was judged stays judged."""

import asyncio
from base64 import b64decode, b64encode
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from sqlalchemy import select

from millrace.api.platform import Platform, raise_refusal
from millrace.lake.errors_table import SINK_RULE
from millrace.lake.log import load
from millrace.lake.read import scan_files
from millrace.model.chunk import ChunkHeader, TextLayout
from millrace.model.errors import Clash, Missing, Unavailable
from millrace.model.formats import format_of_chunks
from millrace.model.imports import AMEND, PROCESSING, REPLAY, Import
from millrace.model.names import new_id
from millrace.model.ops import Applied
from millrace.model.ops.rows import DiscardErrors, ReplayBegun, ReplayErrors
from millrace.model.table import Definition
from millrace.read.rejected import rejected_rows
from millrace.sink.delta.places import table_store
from millrace.store import tables as t
from millrace.store.records import find_import
from millrace.validate.judge import judge
from millrace.wire.client import Appended
from millrace.wire.envelope import checksum, compress, pack_chunk
from millrace.wire.topics import RAW_INPUT, quick_partitions

# Their bytes were not kept whole; of what a sink refused none were.
_CUT_SHORT = ("row_too_long", "undecodable", "unclosed_quote")
_CONFIRM_SECONDS = 150
_CHUNKS_IN_FLIGHT = 24
LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class _Piece:
    """The open rejects of one original chunk."""

    chunk: int
    rows: tuple[int, ...]
    raw: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which rejected rows: all that are still open, those with a rule among their reasons, or those with the numbers."""

    rule: str | None = None
    rows: frozenset[int] | None = None

    def of(self, rows: pa.RecordBatch, *, whole: bool) -> pa.RecordBatch:
        """`whole`: only rows whose bytes were kept whole."""
        if self.rows is not None:
            rows = rows.filter(pc.is_in(rows["row"], pa.array(sorted(self.rows), pa.int64())))
        if self.rule is not None:
            rows = rows.filter(_has_rule(rows["reasons"], lambda rules: pc.equal(rules, self.rule)))
        return rows.filter(pc.invert(_has_rule(rows["reasons"], _is_cut_short))) if whole else rows


def _is_cut_short(rules: pa.Array) -> pa.Array:
    return pc.or_(pc.is_in(rules, pa.array(_CUT_SHORT)), pc.starts_with(rules, SINK_RULE))


def _has_rule(reasons: pa.Array, is_meant: Callable[[pa.Array], pa.Array]) -> pa.Array:
    hits = is_meant(reasons.flatten().field("rule"))
    rows = pc.unique(pc.list_parent_indices(reasons).filter(hits))
    return pc.is_in(pa.array(range(len(reasons)), pa.int64()), rows.cast(pa.int64()))


async def replay(platform: Platform, origin_id: str, choice: Choice, span: str | None) -> dict[str, Any]:
    origin, definition = await asyncio.to_thread(_find, platform, origin_id)
    written = origin.written
    came_as = format_of_chunks(written.get("encoding"))
    if came_as is None or not came_as.is_replayable:
        raise Clash(
            f"The rows of {origin_id} came as {written.get('encoding') or 'an unfinished upload'}: "
            "they cannot be sent again as they were.",
            remedy="Amend them: send corrected rows.",
            code="only_amendable",
        )
    rows, chunks, doubtful = await asyncio.to_thread(_replayable, platform, origin, definition, choice)
    if not rows:
        raise Missing(
            f"No open rejected row of {origin_id} can be replayed.",
            remedy=f"{doubtful:,} of them have a key that occurs again in their chunk: amend them." if doubtful else "",
            code="nothing_to_replay",
        )
    op = ReplayErrors(
        origin.tenant,
        origin.table,
        id=new_id("imp"),
        of=origin.id,
        rows=b64encode(rows.serialize()).decode(),
        rows_count=len(rows),
        chunks=len(chunks),
        first_version=origin.first_version + chunks[0],
        span=span,
    )
    async with platform.sealing.asked_for(origin.tenant, op.id):
        answer = await platform.submit(op)
        if not isinstance(answer, str):
            raise_refusal(answer)
    return {"import": op.id, "rows": len(rows), "only_amendable": doubtful, "waiting": isinstance(answer, str)}


async def discard(platform: Platform, origin_id: str, choice: Choice) -> dict[str, Any]:
    origin, _ = await asyncio.to_thread(_find, platform, origin_id)
    rows = await asyncio.to_thread(open_rows, platform, origin, choice)
    wanted = b64encode(rows.serialize()).decode()
    op = DiscardErrors(origin.tenant, origin.table, id=new_id("imp"), of=origin.id, rows=wanted)
    return {"import": (await platform.applied(op)).import_id, "rows": len(rows)}


def amendment(platform: Platform, origin_id: str, choice: Choice) -> dict[str, Any]:
    """What an upload of corrected rows says when it asks to be admitted."""
    origin, _ = _find(platform, origin_id)
    rows = open_rows(platform, origin, choice)
    return {"import_kind": AMEND, "of": origin.id, "rows": b64encode(rows.serialize()).decode()}


def open_rows(platform: Platform, origin: Import, choice: Choice) -> BitMap64:
    rows = BitMap64(number for piece in _open_pieces(platform, origin, choice) for number in piece.rows)
    if not rows:
        raise Missing(f"No rejected row of {origin.id} is open.", code="nothing_open")
    return rows


class Replays:
    """Sends the rows of replays once they are admitted, whenever their turn has come, whoever asked for them."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._admitted: SimpleQueue[str] = SimpleQueue()

    def on_applied(self, applied: list[Applied]) -> None:
        for one in applied:
            if isinstance(one.result, ReplayBegun):
                self._admitted.put(one.result.import_id)

    def run(self, stopping: Event) -> None:
        """What was sent before, also by a server that is no more, is recognised by its chunks."""
        wanted = select(t.imports.c.id).where(t.imports.c.kind == REPLAY, t.imports.c.state == PROCESSING)
        with self._platform.store.read() as connection:
            for import_id in connection.execute(wanted).scalars():
                self._admitted.put(import_id)
        while not stopping.is_set():
            with suppress(Empty):
                import_id = self._admitted.get(timeout=LOOK_SECONDS)
                try:
                    _send_again(self._platform, import_id)
                except Unavailable:
                    self._admitted.put(import_id)
                    stopping.wait(LOOK_SECONDS)


def _find(platform: Platform, import_id: str) -> tuple[Import, Definition]:
    with platform.store.read() as connection:
        origin = find_import(connection, import_id)
        if origin is None:
            raise Missing(f"There is no import {import_id}.", code="no_import")
        where = (t.tables.c.tenant == origin.tenant, t.tables.c.name == origin.table)
        definition = connection.execute(select(t.tables.c.definition).where(*where)).scalar_one()
    return origin, Definition.from_json(definition.encode())


def _open_pieces(platform: Platform, origin: Import, choice: Choice, *, whole: bool = False) -> Iterator[_Piece]:
    with platform.store.read() as connection:
        claimed = connection.execute(select(t.claims.c.rows).where(t.claims.c.import_id == origin.id)).scalar()
    taken = BitMap64.deserialize(claimed) if claimed else BitMap64()
    for piece in _pieces(platform, origin, choice, whole=whole):
        yield from _only(piece, lambda row: row not in taken)


def _pieces(platform: Platform, origin: Import, choice: Choice, *, whole: bool) -> Iterator[_Piece]:
    """One chunk after the other, so that memory does not grow with the number of rejected rows."""
    every = rejected_rows(platform.sealing.errors(origin.tenant, origin.table), origin.id)
    for chunk, parts in groupby(every, key=lambda rejected: rejected.chunk):
        chosen = [choice.of(part.rows, whole=whole) for part in parts]
        rows = [number for part in chosen for number in part["row"].to_pylist()]
        yield _Piece(chunk, tuple(rows), tuple(raw for part in chosen for raw in part["raw"].to_pylist()))


def _only(piece: _Piece, wanted: Callable[[int], bool]) -> Iterator[_Piece]:
    kept = [(row, raw) for row, raw in zip(piece.rows, piece.raw, strict=True) if wanted(row)]
    if kept:
        yield _Piece(piece.chunk, tuple(row for row, _ in kept), tuple(raw for _, raw in kept))


def _replayable(
    platform: Platform, origin: Import, definition: Definition, choice: Choice
) -> tuple[BitMap64, list[int], int]:
    """The open rows but those whose key occurs again in their chunk: under one version nothing says which is the later."""
    versions = {origin.first_version + piece.chunk for piece in _open_pieces(platform, origin, choice, whole=True)}
    stored = _stored_keys(platform, origin, definition, versions)
    rows, chunks, doubtful = BitMap64(), [], 0
    for piece in _open_pieces(platform, origin, choice, whole=True):
        double = _doubles(origin, definition, piece, stored)
        doubtful += len(double)
        for kept in _only(piece, lambda row, double=double: row not in double):  # type: ignore[misc]
            rows.update(kept.rows)
            chunks.append(kept.chunk)
    return rows, chunks, doubtful


def _doubles(
    origin: Import, definition: Definition, piece: _Piece, stored: dict[int, list[tuple[Any, ...]]]
) -> set[int]:
    key = definition.table.primary_key
    if not key:
        return set()
    header, body = _chunk(origin, origin, definition, piece)
    accepted = judge(header, body, definition).accepted
    keys = list(zip(*(accepted[name].to_pylist() for name in key), strict=True))
    times = Counter(keys) + Counter(stored.get(header.version, ()))
    return {row for row, one in zip(accepted["_row"].to_pylist(), keys, strict=True) if times[one] > 1}


def _stored_keys(
    platform: Platform, origin: Import, definition: Definition, versions: set[int]
) -> dict[int, list[tuple[Any, ...]]]:
    store = table_store(platform.sink_context, definition)
    columns = [*definition.table.primary_key, "_version"]
    found: dict[int, list[tuple[Any, ...]]] = {}
    wanted = pa.array(sorted(versions), pa.int64())
    for rows in scan_files(store, load(store), columns):
        hits = rows.filter(pc.is_in(rows["_version"], wanted))
        for *key, version in zip(*(hits[name].to_pylist() for name in columns), strict=True):
            found.setdefault(version, []).append(tuple(key))
    return found


def _send_again(platform: Platform, import_id: str) -> None:
    with platform.store.read() as connection:
        imp = find_import(connection, import_id)
        origin = find_import(connection, imp.of) if imp is not None and imp.of else None
    if imp is None or origin is None:
        return
    chosen = BitMap64.deserialize(b64decode(imp.options["rows"]))
    definition = platform.exchange.definitions.read(imp.definition)
    quick, seal = quick_partitions(), platform.sealing.of_import(imp)
    sent: deque[Future[Appended]] = deque()
    for whole_piece in _pieces(platform, origin, Choice(), whole=False):
        for piece in _only(whole_piece, chosen.__contains__):
            header, body = _chunk(imp, origin, definition, piece)
            partition = quick[(crc32(imp.id.encode()) + piece.chunk) % len(quick)]
            payload = compress(body)
            if seal is not None:
                payload = seal.close(payload, str(header.number))
                header = replace(header, checksum=checksum(payload), key=seal.key)
            record = pack_chunk(header, payload)
            sent.append(platform.appender.append(RAW_INPUT, imp.id.encode(), record, partition))
            if len(sent) >= _CHUNKS_IN_FLIGHT:
                sent.popleft().result(_CONFIRM_SECONDS)
    for future in sent:
        future.result(_CONFIRM_SECONDS)


def _chunk(imp: Import, origin: Import, definition: Definition, piece: _Piece) -> tuple[ChunkHeader, bytes]:
    written = origin.written
    layout = written.get("layout")
    body = b"".join(raw + b"\n" for raw in piece.raw)
    header = ChunkHeader(
        import_id=imp.id,
        number=piece.chunk,
        version=origin.first_version + piece.chunk,
        definition=definition.fingerprint,
        encoding=written["encoding"],
        first_row=piece.rows[0],
        first_line=0,
        rows=len(piece.rows),
        plain_bytes=len(body),
        checksum=checksum(compress(body)),
        layout=TextLayout(**{**layout, "columns": tuple(layout["columns"])}) if layout else None,
        row_numbers=piece.rows,
        deletes=origin.deletes,
    )
    return header, body
