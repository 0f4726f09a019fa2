"""The rejected rows of an import that are still open: chosen, and taken apart by the chunks they came in."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from sqlalchemy import select

from millrace.api.sealing import Sealing
from millrace.lake.errors_table import SINK_RULE
from millrace.lake.log import load
from millrace.lake.read import scan_files
from millrace.model.chunk import ChunkHeader, TextLayout
from millrace.model.errors import Missing
from millrace.model.imports import Import
from millrace.model.table import Definition
from millrace.read.rejected import rejected_rows
from millrace.sink.context import SinkContext
from millrace.sink.delta.places import table_store
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from millrace.store.records import known_import
from millrace.validate.judge import judge
from millrace.wire.envelope import checksum, compress

# Their bytes were not kept whole; of what a sink refused none were.
_CUT_SHORT = ("row_too_long", "undecodable", "unclosed_quote")


@dataclass(frozen=True, slots=True)
class Piece:
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


class RejectedRows:
    def __init__(self, store: ControlStore, sink_context: SinkContext, sealing: Sealing) -> None:
        self._store = store
        self._sink_context = sink_context
        self._sealing = sealing

    def find(self, import_id: str) -> tuple[Import, Definition]:
        origin = known_import(self._store, import_id)
        where = (t.tables.c.tenant == origin.tenant, t.tables.c.name == origin.table)
        with self._store.read() as connection:
            definition = connection.execute(select(t.tables.c.definition).where(*where)).scalar_one()
        return origin, Definition.from_json(definition.encode())

    def open_rows(self, origin: Import, choice: Choice) -> BitMap64:
        rows = BitMap64(number for piece in self._open_pieces(origin, choice) for number in piece.rows)
        if not rows:
            raise Missing(f"No rejected row of {origin.id} is open.", code="nothing_open")
        return rows

    def replayable(self, origin: Import, definition: Definition, choice: Choice) -> tuple[BitMap64, list[int], int]:
        """The open rows, their chunks, and how many rows were left out because their key occurs again in their chunk:
        under one version nothing says which is the later."""
        versions = {origin.first_version + piece.chunk for piece in self._open_pieces(origin, choice, whole=True)}
        stored = self._stored_keys(origin, definition, versions)
        rows, chunks, doubtful = BitMap64(), [], 0
        for piece in self._open_pieces(origin, choice, whole=True):
            double = _doubles(origin, definition, piece, stored)
            doubtful += len(double)
            for kept in only_rows(piece, lambda row, double=double: row not in double):  # type: ignore[misc]
                rows.update(kept.rows)
                chunks.append(kept.chunk)
        return rows, chunks, doubtful

    def _open_pieces(self, origin: Import, choice: Choice, *, whole: bool = False) -> Iterator[Piece]:
        with self._store.read() as connection:
            claimed = connection.execute(select(t.claims.c.rows).where(t.claims.c.import_id == origin.id)).scalar()
        taken = BitMap64.deserialize(claimed) if claimed else BitMap64()
        for piece in self.pieces(origin, choice, whole=whole):
            yield from only_rows(piece, lambda row: row not in taken)

    def pieces(self, origin: Import, choice: Choice, *, whole: bool) -> Iterator[Piece]:
        """One chunk after the other, so that memory does not grow with the number of rejected rows."""
        every = rejected_rows(self._sealing.errors(origin.tenant, origin.table), origin.id)
        for chunk, parts in groupby(every, key=lambda rejected: rejected.chunk):
            chosen = [choice.of(part.rows, whole=whole) for part in parts]
            rows = [number for part in chosen for number in part["row"].to_pylist()]
            yield Piece(chunk, tuple(rows), tuple(raw for part in chosen for raw in part["raw"].to_pylist()))

    def _stored_keys(
        self, origin: Import, definition: Definition, versions: set[int]
    ) -> dict[int, list[tuple[Any, ...]]]:
        store = table_store(self._sink_context, definition)
        columns = [*definition.table.primary_key, "_version"]
        found: dict[int, list[tuple[Any, ...]]] = {}
        wanted = pa.array(sorted(versions), pa.int64())
        for rows in scan_files(store, load(store), columns):
            hits = rows.filter(pc.is_in(rows["_version"], wanted))
            for *key, version in zip(*(hits[name].to_pylist() for name in columns), strict=True):
                found.setdefault(version, []).append(tuple(key))
        return found


def only_rows(piece: Piece, wanted: Callable[[int], bool]) -> Iterator[Piece]:
    kept = [(row, raw) for row, raw in zip(piece.rows, piece.raw, strict=True) if wanted(row)]
    if kept:
        yield Piece(piece.chunk, tuple(row for row, _ in kept), tuple(raw for _, raw in kept))


def _doubles(
    origin: Import, definition: Definition, piece: Piece, stored: dict[int, list[tuple[Any, ...]]]
) -> set[int]:
    key = definition.table.primary_key
    if not key:
        return set()
    header, body = chunk_of(origin, origin, definition, piece)
    accepted = judge(header, body, definition).accepted
    keys = list(zip(*(accepted[name].to_pylist() for name in key), strict=True))
    times = Counter(keys) + Counter(stored.get(header.version, ()))
    return {row for row, one in zip(accepted["_row"].to_pylist(), keys, strict=True) if times[one] > 1}


def chunk_of(imp: Import, origin: Import, definition: Definition, piece: Piece) -> tuple[ChunkHeader, bytes]:
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
