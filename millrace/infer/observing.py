"""Chunks in, evidence about each declared column out: from the cells of text formats, or from the file's own types.

Some of the cells are kept, so that advice can say how they are written."""

import io
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import fastavro
import polars as pl
import pyarrow as pa

from millrace.formats.avro_types import fields_of
from millrace.infer.avro import avro_of_arrow
from millrace.infer.evidence import NOTHING, TEXTS, Evidence, bytes_evidence
from millrace.infer.guessing import ColumnGuess, guess_column
from millrace.infer.json_shape import JsonShape, Object, looked_at, shape_of
from millrace.model.chunk import ChunkHeader
from millrace.model.columns import RESCUED_COLUMN, Column
from millrace.model.fields import assigned
from millrace.model.formats import format_of_chunks, load
from millrace.model.stored_types import Avro
from millrace.validate.cells import is_utf8
from millrace.validate.csv_cells import read_cells

_KEPT_BYTES = 64 << 20


class Observed:
    """`written`: the types in the schema of a file that has one."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self._columns = [column for column in columns if column.name != RESCUED_COLUMN]
        self._texts = {column.name for column in columns if column.kind in TEXTS and column.logical is None}
        self._evidence: dict[str, Evidence] = {}
        self._kept: dict[str, list[pa.Array]] = {}
        self._kept_bytes = 0
        self._is_strict = False
        self.written: dict[str, Avro] = {}

    def __getitem__(self, column: str) -> Evidence:
        return self._evidence.get(column, NOTHING)

    def cells(self, column: str) -> int:
        """How many cells have a value."""
        return self[column].cells

    def text(self, column: str) -> pl.Series:
        """The kept cells of a column that are text."""
        parts = self._kept.get(column, [])
        return pl.Series(pa.concat_arrays(parts) if parts else pa.array([], pa.string()))

    def guess(self, column: Column) -> ColumnGuess | None:
        """What the kept cells suggest; None without any."""
        if not self._kept.get(column.name):
            return None
        cells = self.text(column.name).to_arrow().cast(pa.string())
        return guess_column(column.name, cells, self[column.name].nulls, strict=self._is_strict)

    def look_at(self, header: ChunkHeader, body: bytes) -> None:
        found = format_of_chunks(header.encoding)
        if found is not None and found.observer:
            load(found.observer)(self, header, body)

    def look_at_csv(self, header: ChunkHeader, body: bytes) -> None:
        if header.layout is None:
            return
        named = {title: name for name, title in assigned(header.layout.columns, self._columns).items()}
        try:
            cells = read_cells(body, header.layout, set(named), clean=body.isascii() or is_utf8(body))
        except pa.ArrowInvalid:
            return
        for title, values in cells.columns.items():
            if title in named:
                # A text column takes any text: no other type need be tried.
                name = named[title]
                alive = TEXTS if name in self._texts else self[name].fits
                shown = bytes_evidence(values, alive)
                self._add(name, shown)
                if name not in self._texts and "string" in shown.fits:
                    self._keep(name, values.drop_null().view(pa.string()))

    def look_at_json(self, header: ChunkHeader, body: bytes) -> None:
        self._is_strict = True
        objects, shapes = looked_at(body, self._json_shapes)
        for column in self._columns:
            shape = shapes[column.name]
            # No scalar type takes objects or lists.
            self._add(column.name, Evidence(fits=frozenset()) if shape.objects or shape.lists else shape.scalar)
            if column.logical is not None and column.kind not in ("bytes", "fixed"):
                given = (_given(value, column) for value in objects)
                self._keep(column.name, pa.array([value for value in given if isinstance(value, str)], pa.string()))

    def look_at_arrow(self, header: ChunkHeader, body: bytes) -> None:
        # A decoder may raise anything. The judge reports what is wrong with the chunk.
        with suppress(Exception):
            schema = pa.ipc.open_stream(body).schema
            self.written = self.written or {field.name: avro_of_arrow(field.type, "record") for field in schema}

    def look_at_avro(self, header: ChunkHeader, body: bytes) -> None:
        with suppress(Exception):
            schema: Any = fastavro.reader(io.BytesIO(body)).writer_schema
            self.written = self.written or {field["name"]: field["type"] for field in fields_of(schema)}

    def _json_shapes(self, objects: list[Object]) -> Mapping[str, JsonShape]:
        return {column.name: shape_of([_given(value, column) for value in objects]) for column in self._columns}

    def _add(self, column: str, shown: Evidence) -> None:
        self._evidence[column] = self[column].merged(shown)

    def _keep(self, column: str, cells: pa.Array) -> None:
        if len(cells) and self._kept_bytes < _KEPT_BYTES:
            self._kept_bytes += cells.nbytes
            self._kept.setdefault(column, []).append(cells)


def _given(value: Object, column: Column) -> Any:
    for name in (column.name, *column.aliases):
        if name in value:
            return value[name]
    return column.default
