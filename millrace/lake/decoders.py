"""What runs in the bounded processes: a checkpoint or a data file in, its rows as Arrow batches out, in pieces. An answer is
one octet and bytes."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

import pyarrow as pa

# Arrow imports it when the first array is cast: that would be once for every process.
import pyarrow.compute
import pyarrow.parquet as pq

from millrace.bounded.limits import MIB, CpuBound, bound_process
from millrace.lake.conform import INT96_UNIT, present

MEMORY_BYTES = 384 << 20
CPU_SECONDS, CPU_SECONDS_PER_MIB = 20.0, 2.0
PIECE, DONE, DAMAGED, TOO_MUCH = b"P", b"D", b"X", b"M"
MOST_PIECE_BYTES = 16 * MIB
# Few rows, because with dictionary pages each of them may repeat one long value.
_BATCH_ROWS = 1024
_PIECE_BYTES, _MOST_BATCH_BYTES = MIB, 8 * MIB


@dataclass(frozen=True, slots=True)
class CheckpointJob:
    """The columns that are wanted, of each kind of action."""

    columns: tuple[tuple[str, tuple[str, ...]], ...]
    memory_bytes: int = MEMORY_BYTES


@dataclass(frozen=True, slots=True)
class RowsJob:
    path: str
    columns: list[str] | None
    memory_bytes: int = MEMORY_BYTES


def rows_of_checkpoint(link: Connection, job: CheckpointJob) -> None:
    """The life of a process; the bytes of the checkpoint are its first message."""
    bound_process(job.memory_bytes)
    data = link.recv_bytes()
    leaves = [f"{kind}.{name}" for kind, names in job.columns for name in names]
    _answer(link, len(data), _pieces(io.BytesIO(data), leaves))


def rows_of_file(link: Connection, job: RowsJob) -> None:
    """The life of a process."""
    bound_process(job.memory_bytes)
    _answer(link, 0, _pieces(job.path, job.columns, is_schema_told=True))


def _answer(link: Connection, size: int, pieces: Iterator[bytes]) -> None:
    cpu = CpuBound(CPU_SECONDS, CPU_SECONDS_PER_MIB)
    cpu.grant(size)
    try:
        for piece in pieces:
            link.send_bytes(PIECE + piece)
            cpu.grant(len(piece))
        answer = DONE
    except MemoryError:
        answer = TOO_MUCH
    except Exception as error:
        # Whatever a file makes the library say.
        answer = DAMAGED + f"{type(error).__name__}: {' '.join(str(error).split())}".encode()
    link.send_bytes(answer[:MOST_PIECE_BYTES])


def _pieces(source: str | io.BytesIO, columns: list[str] | None, *, is_schema_told: bool = False) -> Iterator[bytes]:
    """`is_schema_told`: there is a batch also of a file without rows."""
    held: list[pa.RecordBatch] = []
    size = 0
    options = {"pre_buffer": False, "buffer_size": MIB, "page_checksum_verification": True}
    with pq.ParquetFile(source, **options, coerce_int96_timestamp_unit=INT96_UNIT) as file:
        names = columns
        if is_schema_told:
            schema = _wanted(file.schema_arrow, columns)
            held.append(pa.RecordBatch.from_pylist([], schema=schema))
            names = schema.names
        for batch in file.iter_batches(_BATCH_ROWS, columns=names, use_threads=False):
            for part in _halved(batch):
                held.append(part)
                size += part.nbytes
                if size > _PIECE_BYTES:
                    yield _stream(held)
                    held, size = [], 0
    if held:
        yield _stream(held)


def _halved(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.nbytes <= _MOST_BATCH_BYTES:
        yield batch
    elif batch.num_rows <= 1:
        raise ValueError(f"a row has more than {_MOST_BATCH_BYTES} bytes")
    else:
        yield from _halved(batch.slice(0, batch.num_rows // 2))
        yield from _halved(batch.slice(batch.num_rows // 2))


def _wanted(schema: pa.Schema, columns: list[str] | None) -> pa.Schema:
    """In the file's order, as its batches have them."""
    names = schema.names if columns is None else present(schema, columns)
    return pa.schema([field for field in schema if field.name in names])


def _stream(batches: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in pa.Table.from_batches(batches).combine_chunks().to_batches():
            stream.write_batch(batch)
    return bytes(memoryview(sink.getvalue()))
