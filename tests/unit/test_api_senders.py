"""Streamed rows over the API and the SDK, on a log that is told to fail: nothing lost, nothing twice, everything told."""

import asyncio
import contextlib
import json
import socketserver
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from starlette.websockets import WebSocket
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from millrace.api.rows import sender_session as stream_session
from millrace.api.rows.endings import Ended
from millrace.client import Millrace, Problem, Unreachable
from millrace.client.sender import Sender
from millrace.model.errors import MillraceError
from millrace.model.frames import MAX_FRAME_BYTES, WINDOW_BYTES
from millrace.upload.gather import GatherLimits
from tests.support.fake_log import TABLE, TENANT, FakeLog, FakeServer, fake_server
from tests.support.waiting import wait_until

ROWS_ROUTE = f"/v1/tenants/{TENANT}/tables/{TABLE}/rows"


@pytest.fixture
def log(tmp_path: Path) -> FakeLog:
    return FakeLog(tmp_path)


@pytest.fixture
def server(log: FakeLog) -> Iterator[FakeServer]:
    with fake_server(log) as started:
        yield started


def row(number: int) -> bytes:
    return b'{"id": %d}' % number


def rows(first: int, last: int) -> bytes:
    return b"\n".join(map(row, range(first, last + 1)))


def sent_once(log: FakeLog, last: int) -> bool:
    return log.rows() == [row(number) for number in range(1, last + 1)]


def raw(server: FakeServer, query: str = "stream=s", token: str | None = None, table: str = TABLE) -> ClientConnection:
    url = f"ws{server.url.removeprefix('http')}/v1/tenants/{TENANT}/tables/{table}/stream?{query}"
    headers = {"Authorization": f"Bearer {token or server.log.admin}"}
    return connect(url, additional_headers=headers, legacy=True, compression=None)


def heard(socket: ClientConnection, kind: str) -> dict[str, Any]:
    """The next frame, which must be of the kind."""
    frame = json.loads(socket.recv(timeout=10))
    assert frame["type"] == kind, frame
    return dict(frame)


def stream(server: FakeServer, **options: Any) -> Sender:
    return Sender(server.client(), TENANT, TABLE, patience=options.pop("patience", 10), **options)


def test_a_connection_tells_where_it_stands_acknowledges_and_tells_the_end(server: FakeServer) -> None:
    with raw(server) as socket:
        assert heard(socket, "ready") == {"type": "ready", "stream": "s", "seq": 0}
        socket.send(b"1\n" + rows(1, 3))
        ack = heard(socket, "ack")
        assert (ack["first"], ack["seq"], ack["version"], ack["row"]) == (1, 3, 1, 1)
        assert ack["import"] == server.log.appends[0].import_id
        end = heard(socket, "end")
        assert (end["import"], end["seq"], end["state"]) == (ack["import"], 3, "completed")
        assert (end["accepted"], end["rejected"], end["ignored"]) == (3, 0, 0)
        socket.send("4\n" + rows(4, 4).decode())
        assert heard(socket, "ack")["seq"] == 4
    with raw(server) as socket:
        assert heard(socket, "ready")["seq"] == 4
    assert sent_once(server.log, 4)


def test_rejected_rows_are_told_by_their_number_in_the_stream(log: FakeLog) -> None:
    limits = GatherLimits(linger_seconds=60, flush_rows=7)
    with fake_server(log, limits) as server, raw(server, "stream=a") as one, raw(server, "stream=b") as other:
        heard(one, "ready")
        heard(other, "ready")
        one.send(b"1\n1\nbad 2\n3\n")
        wait_until(lambda: server.senders.gatherer.keys == 1, 30, "the first rows to wait")
        other.send(b"1\n1\n2\nbad 3\nbad \xff 4\n")
        assert heard(one, "ack")["import"] == heard(other, "ack")["import"], "one append for both"
        (first,) = heard(one, "rejected")["rows"]
        assert (first["seq"], first["row"], first["raw"]) == (2, 2, "bad 2")
        assert first["reasons"][0]["message"] == "is bad"
        assert [(found["seq"], found["row"]) for found in heard(other, "rejected")["rows"]] == [(3, 6), (4, 7)]
        ends = [heard(socket, "end") for socket in (one, other)]
        assert [(end["accepted"], end["rejected"]) for end in ends] == [(2, 1), (2, 2)]


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"2\n{}", "out_of_step"),
        (b"{}", "bad_frame"),
        (b"", "bad_frame"),
        (b"1\n" + b"x" * MAX_FRAME_BYTES, "too_large"),
    ],
)
def test_a_hostile_frame_gets_a_problem_and_the_connection_ends(server: FakeServer, frame: bytes, code: str) -> None:
    with raw(server) as socket:
        heard(socket, "ready")
        socket.send(frame)
        assert heard(socket, "error")["problem"]["code"] == code
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=10)
    assert server.log.rows() == []


def test_a_frame_beyond_all_limits_ends_the_connection(server: FakeServer) -> None:
    with raw(server) as socket:
        heard(socket, "ready")
        with contextlib.suppress(ConnectionClosed):
            socket.send(b"1\n" + b"x" * (3 * MAX_FRAME_BYTES))
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=10)


@pytest.mark.parametrize(
    ("query", "token", "table", "status"),
    [
        ("stream=s", "mr_none", TABLE, 401),
        ("stream=s", None, "nowhere", 404),
        ("stream=s", None, "no.name", 422),
        ("stream=a%20b", None, TABLE, 422),
        ("stream=s&span=a//b", None, TABLE, 422),
    ],
)
def test_who_may_not_stream_is_told_before_the_connection_opens(
    server: FakeServer, query: str, token: str | None, table: str, status: int
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        raw(server, query, token, table)
    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body or b"")["remedy"]
    with pytest.raises(InvalidStatus) as hidden:
        raw(server, token=server.log.stranger)
    assert hidden.value.response.status_code == 404


@pytest.mark.parametrize("is_revoked", [True, False])
def test_a_connection_ends_with_its_token_also_while_nobody_sends(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, is_revoked: bool
) -> None:
    monkeypatch.setattr(stream_session, "TOKEN_SECONDS", 0.1)
    soon_us = None if is_revoked else time.time_ns() // 1000 + 3_000_000
    token = server.log.tokens.make("short", TENANT, expires_us=soon_us)
    with raw(server, token=token) as socket:
        heard(socket, "ready")
        socket.send(b"1\n{}")
        heard(socket, "ack")
        heard(socket, "end")
        if is_revoked:
            server.log.tokens.revoke("short", TENANT)
        code = heard(socket, "error")["problem"]["code"]
        assert code == ("unauthorised" if is_revoked else "expired")
    assert len(server.log.rows()) == 1


def test_a_new_connection_takes_over_a_stream(server: FakeServer) -> None:
    with raw(server) as old:
        heard(old, "ready")
        old.send(b"1\n" + rows(1, 2))
        heard(old, "ack")
        heard(old, "end")
        with raw(server) as new:
            assert heard(new, "ready")["seq"] == 2
            assert heard(old, "error")["problem"]["code"] == "taken_over"
            new.send(b"3\n" + rows(3, 3))
            heard(new, "ack")
    assert sent_once(server.log, 3)


def test_a_table_that_is_busy_is_waited_for(server: FakeServer) -> None:
    with raw(server) as socket:
        heard(socket, "ready")
        server.call(lambda: setattr(server.log, "busy", True))
        socket.send(b"1\n" + rows(1, 2))
        wait_until(lambda: server.log.waiting, 30, "the append to wait its turn")
        with pytest.raises(TimeoutError):
            socket.recv(timeout=0.05)
        server.call(server.log.free)
        assert heard(socket, "ack")["seq"] == 2


def test_a_client_that_sends_too_much_is_not_read_from(server: FakeServer) -> None:
    server.call(lambda: setattr(server.log, "ends_at_once", False))
    frame, per_frame, total = b"x" * 99 + b"\n", 5000, 0
    with raw(server) as socket:
        heard(socket, "ready")
        server.call(lambda: setattr(server.log, "busy", True))
        stuck = threading.Event()

        def flood() -> None:
            nonlocal total
            try:
                for number in range(200):
                    socket.send(b"%d\n" % (number * per_frame + 1) + frame * per_frame)
                    total += 1
            except ConnectionClosed:
                stuck.set()

        flooding = threading.Thread(target=flood)
        flooding.start()
        wait_until(lambda: server.log.waiting, 30, "the first append")
        before = -1

        def still() -> bool:
            nonlocal before
            same, before = total == before, total
            return same

        wait_until(still, 30, "the flood to be held back")
        held = server.call(lambda: server.senders.gatherer._room._taken)
        assert held <= WINDOW_BYTES + MAX_FRAME_BYTES
        assert total * per_frame * 100 < 40 << 20, "the rest waits in the sender"
        server.kill()
        flooding.join(10)


def test_the_sdk_streams_rows_of_any_shape(server: FakeServer) -> None:
    told: list[dict[str, Any]] = []
    with stream(server, on_rejected=told.extend) as sending:
        sending.send(rows(1, 2))
        sending.send([{"id": 3}, {"id": 4}])
        assert sending.flush() == 4
        sending.send(b'\n  \n{"id": 5}\r\nbad\n')
        summary = sending.finish()
    assert (summary.rows, summary.accepted, summary.rejected, summary.unheard) == (6, 5, 1, 0)
    assert summary.version == len(server.log.appends) == summary.appends
    assert [found["seq"] for found in told] == [6]
    assert [json.loads(found)["id"] for found in server.log.rows()[:5]] == [1, 2, 3, 4, 5]


def test_a_stream_with_a_name_goes_on_where_it_was(server: FakeServer) -> None:
    with stream(server, name="mine") as sending:
        sending.send(rows(1, 10))
    with stream(server, name="mine") as sending:
        assert sending.seq == 10
        sending.send(rows(11, 20))
    assert sent_once(server.log, 20)
    assert server.log.streams[TABLE, "mine"] == 20


def test_rows_longer_than_a_frame_are_sent_cut_and_many_rows_in_many_frames(server: FakeServer) -> None:
    long = b'{"id": "' + b"x" * (2 * MAX_FRAME_BYTES) + b'"}'
    with stream(server) as sending:
        sending.send(rows(1, 50_000) + b"\n" + long + b"\n" + row(7))
        assert sending.flush() == 50_002
    found = server.log.rows()
    assert found[:50_000] == [row(number) for number in range(1, 50_001)]
    assert len(found[50_000]) < MAX_FRAME_BYTES
    assert found[50_001] == row(7)


def test_a_killed_server_loses_and_repeats_nothing(log: FakeLog) -> None:
    with fake_server(log) as first:
        port = int(first.url.rpartition(":")[2])
        with stream(first, patience=30) as sending:
            servers = [first]
            for turn in range(5):
                for number in range(turn * 2000 + 1, turn * 2000 + 2001, 10):
                    sending.send(rows(number, number + 9))
                log.lost_answers = 1 if turn % 2 else 0
                servers[-1].kill()
                servers.append(FakeServer(log, port))
            summary = sending.finish()
            servers[-1].kill()
    assert sent_once(log, 10_000)
    assert summary.rows == 10_000
    assert summary.accepted + summary.unheard == 10_000
    assert len(log.opened) > 1


def test_rows_whose_acknowledgement_was_lost_are_not_sent_again(log: FakeLog) -> None:
    log.lost_answers = 1
    with fake_server(log) as first:
        port = int(first.url.rpartition(":")[2])
        with stream(first) as sending:
            sending.send(rows(1, 3))
            wait_until(log.rows, 30, "the rows to be in the log")
            sending.send(rows(4, 5))
            first.kill()
            second = FakeServer(log, port)
            summary = sending.finish()
            second.kill()
    assert sent_once(log, 5)
    assert (summary.rows, summary.accepted, summary.unheard) == (5, 2, 3)


def test_what_a_broken_connection_could_not_tell_is_asked_for(log: FakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.ends_at_once = False
    told: list[dict[str, Any]] = []
    with fake_server(log) as first:
        port = int(first.url.rpartition(":")[2])
        with stream(first, on_rejected=told.extend) as sending:
            sending.send(b'{"id": 1}\nbad\n')
            sending.flush()
            import_id = log.appends[0].import_id
            document = {"rows": {"read": 2, "accepted": 1, "rejected": 1, "ignored": 0}, "error": None}
            monkeypatch.setattr(sending._imports, "wait", lambda asked: {import_id: document}[asked])
            bad = {"row": 2, "line": 2, "raw": "bad", "reasons": []}
            monkeypatch.setattr(sending._rejected, "list", lambda asked: iter([bad]))
            first.kill()
            second = FakeServer(log, port)
            summary = sending.finish()
            second.kill()
    assert (summary.accepted, summary.rejected, summary.unheard) == (1, 1, 0)
    assert [found["seq"] for found in told] == [2]


def test_a_log_that_is_away_for_a_moment_is_no_failure(server: FakeServer) -> None:
    with stream(server) as sending:
        sending.send(rows(1, 5))
        sending.flush()
        server.call(lambda: setattr(server.log, "away", 2))
        sending.send(rows(6, 9))
        sending.flush()
    assert sent_once(server.log, 9)


def test_a_server_that_dies_before_it_has_answered_is_unreachable(server: FakeServer) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as deaf:
        threading.Thread(target=deaf.serve_forever, daemon=True).start()
        client = Millrace(f"http://127.0.0.1:{deaf.server_address[1]}", "token")
        with pytest.raises(Unreachable), Sender(client, TENANT, TABLE):
            pass
        deaf.shutdown()


def test_whatever_stops_the_streams_thread_is_raised(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("unforeseen")

    monkeypatch.setattr("millrace.client.sender.linked", broken)
    with pytest.raises(MillraceError, match="unforeseen"), stream(server):
        pass


def test_an_end_is_told_although_its_counts_could_not_be_read_at_once(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millrace.api.rows.endings.PAUSE_SECONDS", 0.0)
    endings = server.senders.appends.endings
    read, failures = endings._read, [OperationalError("select", None, Exception("locked"))] * 2

    def sometimes(import_ids: set[str]) -> dict[str, Ended]:
        if failures:
            raise failures.pop()
        return read(import_ids)

    monkeypatch.setattr(endings, "_read", sometimes)
    with stream(server) as sending:
        sending.send(rows(1, 2))
        assert sending.finish().accepted == 2
    assert failures == []


def test_problems_for_good_are_raised_and_a_platform_that_is_not_there_is_said_at_once(server: FakeServer) -> None:
    with pytest.raises(Problem) as missing, Sender(server.client(), TENANT, "nowhere"):
        pass
    assert missing.value.code == "no_table"
    sending = stream(server, name="one").__enter__()
    with raw(server, "stream=one") as other:
        heard(other, "ready")
        with pytest.raises(Problem) as lost:
            wait_until(lambda: sending.send(b"{}"), 30, "the stream to be taken over")
        assert lost.value.code == "taken_over"
    sending.close()
    server.kill()
    with pytest.raises(Unreachable), stream(server):
        pass


def test_a_failed_append_is_told(server: FakeServer) -> None:
    server.call(lambda: setattr(server.log, "ends_at_once", False))
    with stream(server) as sending:
        sending.send(rows(1, 2))
        sending.flush()
        error = {"code": "chunk_failed", "message": "It broke.", "remedy": ""}
        server.call(lambda: server.log.end(server.log.appends[0], error))
        summary = sending.finish()
    assert summary.failures == (error,)


def test_rows_of_a_request_are_answered_with_their_place(server: FakeServer) -> None:
    with server.client() as client:
        answer = client.ok("POST", ROWS_ROUTE, content=rows(1, 3))
        assert (answer.status_code, answer.json()["rows"], answer.json()["version"]) == (202, 3, 1)
        assert answer.json()["import"] == server.log.appends[0].import_id
        answer = client.ok("POST", ROWS_ROUTE, content=b'[{"id": 1},\n{"id": "bad"}]', params={"wait": "10"})
        assert answer.status_code == 200
        told = answer.json()
        assert (told["state"], told["accepted"], told["rejected"]) == ("completed", 1, 1)
        assert [(bad["row"], bad["raw"]) for bad in told["errors"]] == [(2, '{"id": "bad"}')]


def test_a_request_that_does_not_wait_long_enough_still_has_its_place(server: FakeServer) -> None:
    server.call(lambda: setattr(server.log, "ends_at_once", False))
    with server.client() as client:
        answer = client.ok("POST", ROWS_ROUTE, content=rows(1, 3), params={"wait": "0.01"})
    assert answer.status_code == 202
    assert "state" not in answer.json()


def test_the_same_key_is_the_same_rows_and_spoils_nobody_elses(log: FakeLog) -> None:
    with fake_server(log, GatherLimits(linger_seconds=0.05)) as server, server.client() as client:
        keyed = {"Idempotency-Key": "once"}
        first = client.ok("POST", ROWS_ROUTE, content=rows(1, 3), headers=keyed)
        assert first.status_code == 202
        others: list[int] = []
        posts = [
            threading.Thread(target=lambda: others.append(client.ok("POST", ROWS_ROUTE, content=b"{}").status_code))
            for _ in range(3)
        ]
        for post in posts:
            post.start()
        again = client.ok("POST", ROWS_ROUTE, content=rows(1, 3), headers=keyed)
        for post in posts:
            post.join(10)
        assert (again.status_code, again.json()) == (200, {"rows": 3, "repeated": True})
        assert others == [202] * 3
        assert len(log.rows()) == 6


def test_the_same_key_at_the_same_time_is_the_same_rows(server: FakeServer) -> None:
    with server.client() as client:
        answers: list[int] = []

        def post() -> None:
            answers.append(
                client.ok("POST", ROWS_ROUTE, content=rows(1, 3), headers={"Idempotency-Key": "k"}).status_code
            )

        threads = [threading.Thread(target=post) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert sorted(answers) == [200] * 7 + [202]
    assert sent_once(server.log, 3)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 422, "invalid"),
        (b" \n\n", 422, "invalid"),
        (b"[]", 422, "invalid"),
        (b"[1", 422, "invalid"),
        (b"x" * (MAX_FRAME_BYTES + 1), 413, "too_large"),
    ],
)
def test_bodies_without_rows_or_with_too_many_are_refused(
    server: FakeServer, body: bytes, status: int, code: str
) -> None:
    with server.client() as client:
        answer = client.send("POST", ROWS_ROUTE, content=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert server.log.rows() == []


def test_too_many_streams_are_refused(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.senders._slots, "limit", replace(server.senders._slots.limit, of_tenant=2))
    with raw(server, "stream=a") as one, raw(server, "stream=b") as other:
        heard(one, "ready")
        heard(other, "ready")
        with pytest.raises(InvalidStatus) as refused, raw(server, "stream=c"):
            pass
        assert refused.value.response.status_code == 429
        assert int(refused.value.response.headers["Retry-After"]) >= 1
        with raw(server, "stream=b") as again:
            heard(again, "ready")
    with raw(server, "stream=c") as again:
        heard(again, "ready")


def test_of_streams_that_come_at_once_only_so_many_are_accepted(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.senders._slots, "limit", replace(server.senders._slots.limit, of_tenant=2))
    accept = WebSocket.accept

    async def slow(socket: WebSocket) -> None:
        await asyncio.sleep(0.5)
        await accept(socket)

    monkeypatch.setattr(WebSocket, "accept", slow)
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(12) as pool:

        def come(number: int) -> int:
            try:
                socket = stack.enter_context(raw(server, f"stream=s{number}"))
            except InvalidStatus as refused:
                return refused.response.status_code
            heard(socket, "ready")
            return 101

        assert sorted(pool.map(come, range(12))) == [101] * 2 + [429] * 10
