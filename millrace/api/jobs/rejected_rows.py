"""The rejected rows of an import that are still open: chosen, and taken apart by the chunks they came in."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from sqlalchemy import select

from millrace.api.sealing import Sealing
from millrace.control.claims import ClosedRows
from millrace.lake.log import load
from millrace.lake.read import scan_files
from millrace.lake.store import Store
from millrace.model.chunk import ChunkHeader, TextLayout
from millrace.model.errors import Clash, Missing
from millrace.model.formats import JSON_LINES, format_of_chunks
from millrace.model.imports import REPLAY, Import
from millrace.model.table import CsvDialect, Definition
from millrace.read.original_file import OriginalForm
from millrace.read.rejected import rejected_numbers, rejected_rows
from millrace.read.row_states import OPEN, RowStates, numbers_of
from millrace.read.whole_rows import kept_whole, with_rule
from millrace.sink.context import SinkContext
from millrace.sink.delta.places import table_store
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from millrace.store.records import known_import
from millrace.validate.judge import judge
from millrace.wire.envelope import checksum, compress

DIALECT = ("header", "delimiter", "quote", "null_text", "encoding")


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
            rows = with_rule(rows, self.rule)
        return kept_whole(rows) if whole else rows


ALL = Choice()


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

    def dialect_of(self, origin: Import) -> dict[str, Any]:
        """How the file of the rows was written: as its sender said, else as its table declared."""
        while origin.kind == REPLAY and origin.of is not None:
            origin = known_import(self._store, origin.of)
        of = (t.revisions.c.fingerprint == origin.definition, t.revisions.c.tenant == origin.tenant)
        with self._store.read() as connection:
            found = connection.execute(select(t.revisions.c.definition).where(*of)).scalar()
        declared = CsvDialect() if found is None else Definition.from_json(found.encode()).table.csv
        return {name: origin.options.get(name, getattr(declared, name)) for name in DIALECT}

    def original_form(self, import_id: str) -> OriginalForm:
        origin, _ = self.find(import_id)
        if not origin.written:
            raise Clash(
                f"The upload of {import_id} was never finished: nobody knows how its rows are written.",
                remedy="Import the file again; rows that arrived are not doubled.",
                code="unfinished",
            )
        _, layout = written_form(origin)
        return OriginalForm(layout, origin.written.get("line_end") or "\n", self.dialect_of(origin)["encoding"])

    def open_rows(self, origin: Import, choice: Choice) -> BitMap64:
        rows = self.chosen(origin, choice) - self.closed(origin.id).rows
        if not rows:
            raise Missing(f"No rejected row of {origin.id} is open.", code="nothing_open")
        return rows

    def chosen(self, origin: Import, choice: Choice = ALL) -> BitMap64:
        """The numbers of its rejected rows, open or not."""
        if choice.rule is None:
            every = BitMap64(rejected_numbers(self._errors(origin), origin.id))
            return every if choice.rows is None else every & BitMap64(choice.rows)
        found = (choice.of(rejected.rows, whole=False) for rejected in rejected_rows(self._errors(origin), origin.id))
        return BitMap64().union(*(BitMap64(numbers_of(rows)) for rows in found))

    def closed(self, import_id: str) -> ClosedRows:
        with self._store.read() as connection:
            claimed = connection.execute(select(t.claims.c.rows).where(t.claims.c.import_id == import_id)).scalar()
        return ClosedRows.read(claimed)

    def states(self, import_id: str, wanted: str | None = None) -> RowStates:
        closed = self.closed(import_id).by_way
        known = {way: np.asarray(rows.to_array(), np.int64) for way, rows in closed.items()}
        return RowStates(known, None if wanted is None else frozenset({wanted}))

    def open_batches(self, origin: Import, choice: Choice) -> Iterator[pa.RecordBatch]:
        """The open rows whose bytes were kept whole."""
        states = replace(self.states(origin.id), wanted=frozenset({OPEN}))
        for rejected in rejected_rows(self._errors(origin), origin.id):
            yield choice.of(states.only_wanted(rejected.rows), whole=True)

    def _errors(self, origin: Import) -> Store:
        return self._sealing.errors(origin.tenant, origin.table)

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
        taken = self.closed(origin.id).rows
        for piece in self.pieces(origin, choice, whole=whole):
            yield from only_rows(piece, lambda row: row not in taken)

    def pieces(self, origin: Import, choice: Choice, *, whole: bool) -> Iterator[Piece]:
        """One chunk after the other, so that memory does not grow with the number of rejected rows."""
        every = rejected_rows(self._errors(origin), origin.id)
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
    encoding, layout = written_form(origin)
    body = b"".join(raw + b"\n" for raw in piece.raw)
    header = ChunkHeader(
        import_id=imp.id,
        number=piece.chunk,
        version=origin.first_version + piece.chunk,
        definition=definition.fingerprint,
        encoding=encoding,
        first_row=piece.rows[0],
        first_line=0,
        rows=len(piece.rows),
        plain_bytes=len(body),
        checksum=checksum(compress(body)),
        layout=layout,
        row_numbers=piece.rows,
        deletes=origin.deletes,
    )
    return header, body


def written_form(origin: Import) -> tuple[str, TextLayout | None]:
    """How the rejected rows are kept: rows of Avro and Parquet files as JSON."""
    written = origin.written
    layout, found = written.get("layout"), format_of_chunks(written.get("encoding"))
    if found is None or not found.is_replayable:
        return JSON_LINES.encoding, None
    return found.encoding, TextLayout(**{**layout, "columns": tuple(layout["columns"])}) if layout else None
