"""What runs in the bounded processes: a checkpoint or a data file in, its actions as JSON lines or its rows as Arrow batches
out, in pieces. An answer is one octet and bytes."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import orjson
import pyarrow as pa

# Arrow imports it when the first array is cast: that would be once for every process.
import pyarrow.compute
import pyarrow.parquet as pq

from millrace.bounded.limits import MIB, CpuBound, bound_process
from millrace.lake.bounds import MOST_LINE_BYTES

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


def checkpoint_lines(link: Connection, job: CheckpointJob) -> None:
    """The life of a process; the bytes of the checkpoint are its first message."""
    bound_process(job.memory_bytes)
    data = link.recv_bytes()
    _answer(link, len(data), _lines(data, job))


def rows_of_file(link: Connection, job: RowsJob) -> None:
    """The life of a process."""
    bound_process(job.memory_bytes)
    _answer(link, 0, _batches(job))


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


def _lines(data: bytes, job: CheckpointJob) -> Iterator[bytes]:
    lines: list[bytes] = []
    size = 0
    leaves = [f"{kind}.{name}" for kind, names in job.columns for name in names]
    with pq.ParquetFile(io.BytesIO(data), pre_buffer=False) as file:
        for batch in file.iter_batches(_BATCH_ROWS, columns=leaves, use_threads=False):
            for line in map(orjson.dumps, actions_in(batch)):
                if len(line) > MOST_LINE_BYTES:
                    raise ValueError(f"an action has {len(line)} bytes, more than {MOST_LINE_BYTES}")
                lines.append(line)
                size += len(line) + 1
                if size > _PIECE_BYTES:
                    yield b"\n".join(lines)
                    lines, size = [], 0
    if lines:
        yield b"\n".join(lines)


def actions_in(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    for kind, column in zip(batch.schema.names, batch.columns, strict=True):
        # Maps are lists of pairs: telling Arrow to make dictionaries takes fifteen times as long.
        for value in column.drop_null().to_pylist():
            yield {kind: value}


def _batches(job: RowsJob) -> Iterator[bytes]:
    held: list[pa.RecordBatch] = []
    size = 0
    with pq.ParquetFile(job.path, pre_buffer=False, buffer_size=MIB) as file:
        # Also of a file without rows.
        held.append(pa.RecordBatch.from_pylist([], schema=_wanted(file.schema_arrow, job.columns)))
        for batch in file.iter_batches(_BATCH_ROWS, columns=job.columns, use_threads=False):
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
    return schema if columns is None else pa.schema([field for field in schema if field.name in columns])


def _stream(batches: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in pa.Table.from_batches(batches).combine_chunks().to_batches():
            stream.write_batch(batch)
    return bytes(memoryview(sink.getvalue()))
