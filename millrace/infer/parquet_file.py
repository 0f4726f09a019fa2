"""A Parquet file in, the draft of its table out: the file's types, nulls from its statistics, the key from some rows."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from millrace.infer.avro import avro_of_arrow
from millrace.infer.draft import Draft, Drafted, avro_name, usable, with_key
from millrace.infer.keys import KeyFinder, may_be_key
from millrace.infer.sampling import compression_of, plain_bytes
from millrace.model.columns import Column, column_of
from millrace.model.errors import Invalid

_GROUPS = 16
_ROWS_PER_GROUP = 50_000


def draft_parquet(path: Path, table: str) -> Drafted:
    try:
        with _plain_file(path) as plain, pq.ParquetFile(plain, pre_buffer=False) as file:
            columns, left_out = _columns(file)
            keyable = [column.name for column in columns if may_be_key(column.avro)]
            watch, rows = KeyFinder(), 0
            for batch in _spaced(file, keyable) if keyable else ():
                watch.add({name: batch.column(name) for name in keyable}, batch.num_rows)
                rows += batch.num_rows
            draft = Draft(table, "parquet", columns, left_out=left_out)
            return Drafted(with_key(draft, watch), rows)
    except (pa.ArrowException, OSError) as error:
        raise Invalid(f"{path.name} cannot be read as Parquet: {error}"[:400], remedy="Get the whole file.") from error


@contextmanager
def _plain_file(path: Path) -> Iterator[Path]:
    if compression_of(path) is None:
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="infer-", suffix=".parquet") as spool:
        for piece in plain_bytes(path):
            spool.write(piece)
        spool.flush()
        yield Path(spool.name)


def _columns(file: pq.ParquetFile) -> tuple[tuple[Column, ...], dict[str, str]]:
    schema = file.schema_arrow
    nulls = _nulls(file)

    def column(name: str) -> Column | str:
        field = schema.field(name)
        avro = avro_of_arrow(field.type, avro_name(name))
        if avro is None:
            return f"is of type {field.type}, which no table can hold"
        return column_of(name, avro, field.nullable and nulls.get(name) != 0)

    return usable(schema.names, column)


def _nulls(file: pq.ParquetFile) -> dict[str, int | None]:
    """The number of nulls of each column that is not nested; None where the file has no statistics."""
    counts: dict[str, int | None] = {}
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        for place in range(group.num_columns):
            chunk = group.column(place)
            known = chunk.statistics.null_count if chunk.statistics and chunk.statistics.has_null_count else None
            so_far = counts.get(chunk.path_in_schema, 0)
            counts[chunk.path_in_schema] = None if known is None or so_far is None else so_far + known
    return counts


def _spaced(file: pq.ParquetFile, names: list[str]) -> Iterator[pa.RecordBatch]:
    """The first rows of row groups that are evenly spaced over the file."""
    groups = file.metadata.num_row_groups
    for number in sorted({place * groups // _GROUPS for place in range(_GROUPS)} if groups else ()):
        yield from _first(file.iter_batches(_ROWS_PER_GROUP, row_groups=[number], columns=names, use_threads=False))


def _first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    batch = next(iter(batches), None)
    if batch is not None:
        yield batch
