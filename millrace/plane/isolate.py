"""Judges chunks in a process apart, with limits: a chunk that kills or hangs it is found, and harms no other chunk."""

import multiprocessing
import resource
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import NamedTuple

from millrace.failpoint import die_if_poisoned
from millrace.model.chunk import ChunkHeader
from millrace.model.table import Definition
from millrace.validate.judge import JudgedChunk, fail, judge

SECONDS = 60
MEMORY_BYTES = 4 << 30
# Children fork from a server that has imported everything and started no thread: a fork is quick and copies no lock.
_CLEAN = multiprocessing.get_context("forkserver")
_CLEAN.set_forkserver_preload(["millrace.plane.isolate"])


@contextmanager
def doomed_after(seconds: float) -> Iterator[None]:
    """Ends this process if the block takes longer, even inside native code. Spark then repeats the task with care."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class UnjudgedChunk(NamedTuple):
    header: ChunkHeader
    body: bytes
    definition: Definition


def judge_apart(chunks: Sequence[UnjudgedChunk]) -> list[JudgedChunk]:
    """One process judges them all and sends each verdict at once. If it dies or hangs, the first chunk without a verdict is
    suspected and gets a process of its own; if that dies too, the chunk fails. Then the rest goes on together."""
    judged: list[JudgedChunk] = []
    suspected = -1
    while len(judged) < len(chunks):
        begun = len(judged)
        together = chunks[begun : begun + 1] if begun == suspected else chunks[begun:]
        judged += _attempt(together)
        if len(judged) == begun + len(together):
            continue
        if len(judged) != suspected:
            suspected = len(judged)
            continue
        header, body, definition = chunks[suspected]
        message = f"Chunk {header.number} kills or hangs the process that judges it."
        judged.append(fail(header, body, definition, message))
    return judged


def _attempt(chunks: Sequence[UnjudgedChunk]) -> list[JudgedChunk]:
    """The verdicts up to the first chunk that has none."""
    ours, theirs = _CLEAN.Pipe(duplex=False)
    child = _CLEAN.Process(target=_judge_and_send, args=(theirs, chunks), daemon=True)
    child.start()
    theirs.close()
    judged: list[JudgedChunk] = []
    try:
        # Also true when the child is gone: then there is nothing to receive.
        while len(judged) < len(chunks) and ours.poll(SECONDS):
            judged.append(ours.recv())
    except (EOFError, OSError):
        # It was killed between two verdicts, or in the middle of one.
        pass
    finally:
        child.kill()
        child.join()
        ours.close()
    return judged


def _judge_and_send(pipe: Connection, chunks: Sequence[UnjudgedChunk]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for header, body, definition in chunks:
        die_if_poisoned(body)
        pipe.send(judge(header, body, definition))
