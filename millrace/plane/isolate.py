"""Judges a chunk in a process of its own, with limits: a chunk that kills or hangs it harms no other chunk."""

import multiprocessing
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from millrace.failpoint import die_if_poisoned
from millrace.model.chunk import ChunkHeader
from millrace.model.table import Definition
from millrace.validate.judge import JudgedChunk, fail, judge

TRIES = 2
SECONDS = 60
MEMORY_BYTES = 4 << 30
# Children fork from a server that has imported everything and started no thread: a fork is quick and copies no lock.
_CLEAN = multiprocessing.get_context("forkserver")
_CLEAN.set_forkserver_preload(["millrace.plane.isolate"])


@contextmanager
def doomed_after(seconds: float) -> Iterator[None]:
    """Ends this process if the block takes longer, even inside native code. Spark then repeats the task, chunk by chunk."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def judge_alone(header: ChunkHeader, body: bytes, definition: Definition) -> JudgedChunk:
    for _ in range(TRIES):
        judged = _attempt(header, body, definition)
        if judged is not None:
            return judged
    return fail(header, body, definition, f"Chunk {header.number} kills or hangs the process that judges it.")


def _attempt(header: ChunkHeader, body: bytes, definition: Definition) -> JudgedChunk | None:
    ours, theirs = _CLEAN.Pipe(duplex=False)
    child = _CLEAN.Process(target=_judge_and_send, args=(theirs, header, body, definition), daemon=True)
    child.start()
    theirs.close()
    try:
        # Also true when the child is gone: then there is nothing to receive.
        if ours.poll(SECONDS):
            judged: JudgedChunk = ours.recv()
            return judged
    except EOFError:
        pass
    finally:
        child.kill()
        child.join()
        ours.close()
    return None


def _judge_and_send(pipe: Connection, header: ChunkHeader, body: bytes, definition: Definition) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    die_if_poisoned(body)
    pipe.send(judge(header, body, definition))
