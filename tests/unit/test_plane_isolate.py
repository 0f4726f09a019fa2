"""A chunk that kills or hangs spoils itself only."""

import os
import signal
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection

import pytest

from millrace.declare.table import parse_table
from millrace.model.chunk import ChunkHeader, TextLayout
from millrace.model.table import define
from millrace.plane import isolate
from millrace.plane.isolate import UnjudgedChunk, doomed_after, judge_apart
from millrace.validate.judge import JudgedChunk, judge

FIELDS = [{"name": "a", "type": "int"}]
DEFINITION = define("acme", parse_table({"schema": {"type": "record", "name": "t", "fields": FIELDS}}), 1)


def chunk(number: int, body: bytes) -> UnjudgedChunk:
    rows, layout = body.count(b"\n"), TextLayout(("a",), ",", '"', "")
    header = ChunkHeader("imp_1", number, 1, "", "csv", 1, 1, rows, len(body), 0, layout)
    return UnjudgedChunk(header, body, DEFINITION)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many chunks each process was given."""
    attempt, given = isolate._attempt, []

    def counting(chunks: Sequence[UnjudgedChunk]) -> list[JudgedChunk]:
        given.append(len(chunks))
        return attempt(chunks)

    monkeypatch.setattr(isolate, "_attempt", counting)
    return given


def _die_of_poison(pipe: Connection, chunks: Sequence[UnjudgedChunk]) -> None:
    for one in chunks:
        if one.body.startswith(b"666"):
            os._exit(9)
        pipe.send(judge(*one))


def test_sound_chunks_are_judged_as_ever_in_one_process(started: list[int]) -> None:
    judged = judge_apart([chunk(number, b"1\nx\n") for number in range(40)])
    assert [one.verdict.number for one in judged] == list(range(40))
    assert {(one.verdict.accepted, one.verdict.rejected, one.verdict.failure) for one in judged} == {(1, 1, None)}
    assert started == [40]


@pytest.mark.parametrize(("guilty", "processes"), [([17], 3), ([0], 3), ([63], 2), ([5, 6, 40], 7)])
def test_only_the_chunk_that_kills_its_process_fails(
    guilty: list[int], processes: int, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried twice, the second time alone. Nobody else is: 64 chunks need a few processes, not 64."""
    monkeypatch.setattr(isolate, "_judge_and_send", _die_of_poison)
    bodies = [b"666\n" if number in guilty else b"1\n2\n" for number in range(64)]
    judged = judge_apart([chunk(number, body) for number, body in enumerate(bodies)])
    assert [one.verdict.number for one in judged] == list(range(64))
    assert [one.verdict.number for one in judged if one.verdict.failure] == guilty
    assert sum(one.verdict.accepted for one in judged) == 2 * (64 - len(guilty))
    assert len(started) == processes
    failed = judged[guilty[0]]
    assert failed.rejected is not None
    assert failed.rejected["raw"].to_pylist() == [b"666\n"]


def _die_in_a_verdict(pipe: Connection, chunks: Sequence[UnjudgedChunk]) -> None:
    """A killer that comes in the middle of a long message."""
    pipe.send(judge(*chunks[0]))
    if len(chunks) > 1:
        os.write(pipe.fileno(), (1 << 20).to_bytes(4, "big") + b"cut off")
        os._exit(9)


def test_a_process_that_dies_in_the_middle_of_a_verdict_harms_no_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolate, "_judge_and_send", _die_in_a_verdict)
    judged = judge_apart([chunk(number, b"1\n") for number in range(3)])
    assert [(one.verdict.number, one.verdict.failure) for one in judged] == [(0, None), (1, None), (2, None)]


def _die_unless_alone(pipe: Connection, chunks: Sequence[UnjudgedChunk]) -> None:
    if len(chunks) > 1:
        os._exit(9)
    pipe.send(judge(*chunks[0]))


def test_a_chunk_beside_which_a_process_died_by_chance_is_judged(
    started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolate, "_judge_and_send", _die_unless_alone)
    judged = judge_apart([chunk(number, b"1\n") for number in range(3)])
    assert [one.verdict.failure for one in judged] == [None] * 3
    assert started == [3, 1, 2, 1, 1]


def test_what_takes_too_long_ends_its_process() -> None:
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        with doomed_after(0.1):
            time.sleep(30)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGALRM


def test_what_is_in_time_goes_on() -> None:
    with doomed_after(30):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
