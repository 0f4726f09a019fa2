"""Cuts Parquet files: spooled to disk while they arrive, read as Arrow batches at the end. A piece is an IPC stream.

Refuses a file that is not Parquet, and columns that do not suit the table, by name and type."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pat

from millrace.arrow.types import arrow_of, arrow_schema, arrow_type, is_list
from millrace.formats.matching import readable_columns, refuse_mismatch, unknown
from millrace.formats.pieces import CutPiece, Opening, ResumePoint
from millrace.formats.spool import Spool
from millrace.formats.swelling import ROW_WEIGHT, refuse_bomb
from millrace.model.columns import DELETED_COLUMN
from millrace.model.errors import Invalid, Unavailable
from millrace.model.fields import Field, assigned, field_of
from millrace.model.stored_types import stored_type

# With dictionary pages each row of a batch may repeat one long value. Small batches bound the memory; they are joined later.
_BATCH_ROWS = 1024
_READ_BUFFER = 1 << 20


class ParquetCutter:
    def __init__(self, opening: Opening) -> None:
        self._definition = opening.definition
        self._options = opening.options
        self._limits = opening.limits
        self._spool = Spool(opening.spool_dir)
        self._row = 1
        self._plain_bytes = self._weighed = 0

    def feed(self, piece: bytes) -> Iterator[CutPiece]:
        try:
            self._spool.write(piece)
        except OSError as error:
            remedy = "Free some disk space and send the file again."
            raise Unavailable(f"{self._options.what} cannot be kept: {error.strerror}.", remedy=remedy) from error
        yield from ()

    def finish(self) -> Iterator[CutPiece]:
        try:
            if self._spool.size:
                yield from self._read()
            if self._row == 1:
                yield self._cut(arrow_schema(self._definition.columns), [])
        except MemoryError:
            raise
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise Invalid(
                f"{self._options.what} cannot be read as Parquet after {self._row - 1} rows: {error}"[:400],
                remedy="Send the whole file again; if that fails too, write it again or name its true type.",
            ) from error
        finally:
            self.close()

    def drain(self) -> Iterator[CutPiece]:
        """Gives nothing: a Parquet file can only be read when all of it has arrived."""
        yield from ()

    def resume_point(self) -> ResumePoint | None:
        return None

    def rows_cut(self) -> int:
        return self._row - 1

    def repeated_headers(self) -> int:
        return 0

    def close(self) -> None:
        self._spool.close()

    def _read(self) -> Iterator[CutPiece]:
        with pq.ParquetFile(self._spool.whole(), pre_buffer=False, buffer_size=_READ_BUFFER) as file:
            names = self._checked_names(file.schema_arrow)
            joined: list[pa.RecordBatch] = []
            size = 0
            for batch in self._small_batches(file, names):
                weight = _weight(batch)
                if joined and size + weight > self._limits.piece_bytes:
                    yield self._cut(joined[0].schema, joined)
                    joined, size = [], 0
                if batch.num_rows == 1 and weight > self._limits.row_bytes:
                    yield self._oversize(batch)
                else:
                    joined.append(batch)
                    size += weight
            if joined:
                yield self._cut(joined[0].schema, joined)

    def _small_batches(self, file: pq.ParquetFile, names: list[str]) -> Iterator[pa.RecordBatch]:
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            row_bytes = group.total_byte_size / max(1, group.num_rows)
            rows = max(1, min(_BATCH_ROWS, int(self._limits.piece_bytes / max(1, row_bytes))))
            for batch in file.iter_batches(rows, row_groups=[number], columns=names, use_threads=False):
                yield from self._halved(_plain(batch))

    def _halved(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if _weight(batch) <= self._limits.piece_bytes or batch.num_rows <= 1:
            yield batch
            return
        middle = batch.num_rows // 2
        yield from self._halved(batch.slice(0, middle))
        yield from self._halved(batch.slice(middle))

    def _checked_names(self, schema: pa.Schema) -> list[str]:
        where = f"{self._options.what}: its Parquet schema"
        deletes = self._options.deletes
        refuse_mismatch(schema.names, self._definition, where, deletes=deletes)
        columns = readable_columns(self._definition, deletes=deletes)
        names = assigned(schema.names, columns)
        known = {names[column.name]: column for column in columns if column.name in names}
        wrong = [
            f"{name!r} is {schema.field(name).type}, the table has {arrow_type(column)}"
            for name, column in known.items()
            if not _suits(schema.field(name).type, field_of(column))
        ]
        if wrong:
            shown = "; ".join(wrong[:10]) + (f" and {len(wrong) - 10} more" if len(wrong) > 10 else "")
            raise Invalid(f"{where} has columns of other types: {shown}.", remedy="Write them with the table's types.")
        rescues = self._definition.table.unknown_fields == "rescue" and not deletes
        rescued = unknown(schema.names, columns) if rescues else []
        marks = [name for name in schema.names if name == DELETED_COLUMN]
        return [*known, *marks, *rescued] or schema.names[:1]

    def _cut(self, schema: pa.Schema, batches: list[pa.RecordBatch]) -> CutPiece:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as stream:
            for batch in batches:
                stream.write_batch(batch)
        body = sink.getvalue().to_pybytes()
        rows = sum(batch.num_rows for batch in batches)
        self._plain_bytes += len(body)
        self._weighed += max(len(body), rows * ROW_WEIGHT)
        self._options.refuse_too_much(self._plain_bytes)
        refuse_bomb(self._options.what, "decodes", self._spool.size, self._weighed)
        self._row += rows
        return CutPiece(body, "arrow", self._row - rows, 0, rows)

    def _oversize(self, batch: pa.RecordBatch) -> CutPiece:
        reason = self._limits.oversize(self._row)
        body = json.dumps(_shown(batch), default=str, ensure_ascii=False).encode(errors="replace")
        self._row += 1
        return CutPiece(body[: self._limits.kept_bytes], "oversize", self._row - 1, 0, 1, None, reason)


def _shown(batch: pa.RecordBatch) -> Any:
    try:
        return batch.to_pylist()[0]
    except (ValueError, OverflowError):
        # Arrow may hold years after 9999 and text that is not UTF-8. Python cannot.
        return {name: column.to_string() for name, column in zip(batch.schema.names, batch.columns, strict=True)}


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch without dictionaries: each piece would have to repeat them."""
    columns = [
        column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _weight(batch: pa.RecordBatch) -> int:
    """The bytes of the batch. Rows that hold nothing count too, and so do nulls without a type, which take no bytes."""
    size = max(batch.nbytes, batch.num_rows * ROW_WEIGHT)
    return int(size + sum(_untyped(column) for column in batch.columns if pat.is_nested(column.type)))


def _untyped(array: pa.Array) -> int:
    """The values without a type inside an array."""
    kind = array.type
    if pat.is_null(kind):
        return len(array)
    if pat.is_struct(kind):
        return sum(_untyped(array.field(number)) for number in range(kind.num_fields))
    if pat.is_map(kind):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        return _untyped(array.items.slice(first, last - first))
    if is_list(kind):
        return _untyped(array.flatten())
    return 0


def _suits(given: pa.DataType, field: Field) -> bool:
    """Whether values of the type can be stored in the field. Missing inner fields are judged row by row, not here."""
    if field.kind == "record":
        return pat.is_struct(given) and _fields_suit(given, field)
    if field.kind == "array":
        return is_list(given) and _suits(given.value_type, field.element())
    if field.kind == "map":
        return pat.is_map(given) and _suits(given.item_type, field.element())
    try:
        pa.array([], given).cast(arrow_of(stored_type(field.avro, field.name)))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):
        return False
    return True


def _fields_suit(given: pa.StructType, field: Field) -> bool:
    parts = field.inner_fields()
    names = assigned((inner.name for inner in given), parts)
    return all(_suits(given.field(names[part.name]).type, part) for part in parts if part.name in names)
