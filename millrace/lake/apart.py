"""Decodes Parquet files of a table in a process that the kernel bounds, if they are not small for sure: a job in, pieces of
what it holds out (`decoders.py`). Nothing else of the file comes back."""

import signal
import threading
from collections.abc import Iterator

import pyarrow as pa

from millrace.bounded.child import BoundedChild
from millrace.bounded.limits import MIB
from millrace.lake.bounds import too_large
from millrace.lake.decoders import CPU_SECONDS, DONE, MOST_PIECE_BYTES, PIECE, TOO_MUCH, CheckpointJob, RowsJob
from millrace.lake.store import Store
from millrace.model.errors import Corrupt, MillraceError, Unavailable

ANSWER_SECONDS = 60.0
# Imported by the process that children are forked from.
DECODERS = "millrace.lake.decoders"
# In one process. A checkpoint takes a fraction of a second, unless it wants to harm.
_AT_ONCE = threading.BoundedSemaphore(4)
_MOST_TEXT = 300
_REMEDY = "Write it again with smaller row groups and pages, with the engine that wrote it."


def checkpoint_apart(store: Store, name: str, data: bytes, job: CheckpointJob) -> Iterator[pa.RecordBatch]:
    """The rows of a checkpoint, with the wanted columns."""
    return _batches(_pieces(store, name, "rows_of_checkpoint", job, data))


def rows_apart(store: Store, name: str, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a data file, or some of their columns."""
    return _batches(_pieces(store, name, "rows_of_file", RowsJob(store.local(name), columns)))


def _batches(pieces: Iterator[bytes]) -> Iterator[pa.RecordBatch]:
    for piece in pieces:
        for batch in pa.ipc.open_stream(piece):
            # The process may have sent anything.
            batch.validate(full=True)
            yield batch


def _pieces(
    store: Store, name: str, function: str, job: CheckpointJob | RowsJob, data: bytes | None = None
) -> Iterator[bytes]:
    if not _AT_ONCE.acquire(timeout=ANSWER_SECONDS):
        raise Unavailable("Too many files of tables are being decoded.", remedy="Try again.", code="busy")
    try:
        yield from _told(store, name, BoundedChild(f"{DECODERS}:{function}", job), job.memory_bytes, data)
    finally:
        _AT_ONCE.release()


def _told(store: Store, name: str, child: BoundedChild, memory_bytes: int, data: bytes | None) -> Iterator[bytes]:
    try:
        if data is not None:
            child.link.send_bytes(data)
        while True:
            if not child.link.poll(ANSWER_SECONDS):
                raise too_large(store.where, name, f"was not decoded further within {ANSWER_SECONDS:g} s", _REMEDY)
            answer = child.link.recv_bytes(MOST_PIECE_BYTES)
            if answer[:1] == DONE:
                return
            if answer[:1] != PIECE:
                raise _refusal(store, name, answer, memory_bytes)
            yield answer[1:]
    except (EOFError, OSError) as gone:
        raise _why(store, name, child.ended(), memory_bytes) from gone
    finally:
        child.end()


def _refusal(store: Store, name: str, answer: bytes, memory_bytes: int) -> MillraceError:
    if answer[:1] == TOO_MUCH:
        return too_large(store.where, name, f"takes more than {memory_bytes // MIB} MiB to decode", _REMEDY)
    return _damaged(store, name, answer[1 : _MOST_TEXT + 1].decode(errors="replace"))


def _why(store: Store, name: str, code: int | None, memory_bytes: int) -> MillraceError:
    if code == -signal.SIGXCPU:
        return too_large(store.where, name, f"takes more than {CPU_SECONDS:g} s to decode", _REMEDY)
    if code in (-signal.SIGABRT, -signal.SIGKILL):
        return _refusal(store, name, TOO_MUCH, memory_bytes)
    return _damaged(store, name, "it ended its decoder")


def _damaged(store: Store, name: str, why: str) -> Corrupt:
    remedy = "The next attempt reads it anew." if store.renew(name) else f"Restore {name} from a copy."
    return Corrupt(f"{name} of the Delta table at {store.where} is damaged: {why}.", remedy=remedy)
