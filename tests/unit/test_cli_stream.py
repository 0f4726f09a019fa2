"""`millrace stream`: what scripts rely on."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from millrace.cli.streaming import blocks_of_rows
from millrace.model.frames import MAX_FRAME_BYTES, cut_long_row
from tests.support.fake_log import TABLE, TENANT, FakeLog, FakeServer, fake_server
from tests.support.processes import started
from tests.support.waiting import wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServer]:
    with fake_server(FakeLog(tmp_path)) as started:
        yield started


def command(server: FakeServer, *words: str, table: str = TABLE) -> "AbstractContextManager[subprocess.Popen[bytes]]":
    environ = {**os.environ, "MILLRACE_URL": server.url, "MILLRACE_TOKEN": server.log.admin}
    argv = [sys.executable, "-m", "millrace.cli.main", "stream", f"{TENANT}/{table}", *words]
    pipe = subprocess.PIPE
    return started(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=environ)


def run(server: FakeServer, stdin: bytes, *words: str, table: str = TABLE) -> tuple[int, str, str]:
    with command(server, *words, table=table) as process:
        out, err = process.communicate(stdin, timeout=60)
    return process.returncode, out.decode(), err.decode()


def test_rows_in_a_summary_out_rejected_rows_on_standard_error(server: FakeServer) -> None:
    code, out, err = run(server, b'{"id": 1}\n\n{"id": "bad \x1b[31m"}\n{"id": 2}', "--json")
    assert code == 0
    summary = json.loads(out)
    assert (summary["rows"], summary["accepted"], summary["rejected"]) == (3, 2, 1)
    assert json.loads(err)["seq"] == 2
    code, out, err = run(server, b'{"id": 1}\n{"id": "bad \x1b[31m"}\n')
    assert code == 0
    assert "2 rows sent, 1 accepted, 1 rejected" in out
    assert "row 2 rejected: id: is bad" in err
    assert "\x1b" not in err, "a row cannot speak to the terminal"


def test_exit_codes(server: FakeServer) -> None:
    assert run(server, b"")[0] == 0
    assert run(server, b"bad\n")[0] == 1, "nothing was accepted"
    assert run(server, b"{}\nbad\n", "--fail-on-rejects")[0] == 1
    code, _, err = run(server, b"{}\n", table="nowhere")
    assert code == 1
    assert "no table" in err
    server.kill()
    code, _, err = run(server, b"{}\n")
    assert code == 3
    assert "cannot be reached" in err


def test_a_named_sender_begun_again_passes_over_what_is_in(server: FakeServer) -> None:
    rows = [b'{"id": %d}\n' % number for number in range(30_000)]
    assert run(server, b"".join(rows[:12_345]), "--stream", "mine")[0] == 0
    code, out, err = run(server, b"".join(rows), "--sender", "mine", "--json")
    assert code == 0
    assert "12,345 rows are in already" in err
    assert json.loads(out)["rows"] == 30_000 - 12_345
    assert server.log.rows() == [row.strip() for row in rows]


def test_a_slow_input_is_sent_as_it_comes_and_an_interrupt_says_how_to_go_on(server: FakeServer) -> None:
    with command(server) as process:
        assert process.stdin is not None
        process.stdin.write(b'{"id": 1}\n{"id"')
        process.stdin.flush()
        wait_until(lambda: server.log.rows() == [b'{"id": 1}'], 30, "the first row, without waiting for the next")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "--sender st_" in err.decode()


def test_blocks_are_cut_at_row_ends_and_endless_lines_are_cut_off() -> None:
    assert list(blocks_of_rows([b"a\nb", b"c", b"\nd\n", b"e"])) == [b"a\n", b"bc\nd\n", b"e\n"]
    assert list(blocks_of_rows([b"\n \n", b""])) == [b""]
    block = b"x" * (256 << 10)
    (cut,) = blocks_of_rows([b"a" + block, *[block] * 100, b"end\nnext\n"])
    first, following = cut.splitlines(keepends=True)
    assert following == b"next\n"
    assert MAX_FRAME_BYTES < len(first) < 2 * MAX_FRAME_BYTES
    assert cut_long_row(first).startswith(b"axxx")
