"""A chunk that kills or hangs spoils itself only."""

import os
import signal
import time

import pytest

from millrace.declare.table import parse_table
from millrace.model.chunk import ChunkHeader, TextLayout
from millrace.model.table import define
from millrace.plane import isolate
from millrace.plane.isolate import doomed_after, judge_alone

FIELDS = [{"name": "a", "type": "int"}]
DEFINITION = define("acme", parse_table({"schema": {"type": "record", "name": "t", "fields": FIELDS}}), 1)


def header(body: bytes, rows: int) -> ChunkHeader:
    return ChunkHeader("imp_1", 0, 1, "", "csv", 1, 1, rows, len(body), 0, TextLayout(("a",), ",", '"', ""))


def test_a_sound_chunk_is_judged_as_ever() -> None:
    body = b"1\nx\n"
    judged = judge_alone(header(body, 2), body, DEFINITION)
    assert (judged.verdict.accepted, judged.verdict.rejected, judged.verdict.failure) == (1, 1, None)


def test_a_chunk_whose_process_dies_fails_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolate, "_judge_and_send", os._exit)
    body = b"1\n2\n"
    judged = judge_alone(header(body, 2), body, DEFINITION)
    assert judged.verdict.failure is not None
    assert judged.verdict.rejected == 2
    assert judged.rejected is not None
    assert judged.rejected["raw"].to_pylist() == [body]


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
