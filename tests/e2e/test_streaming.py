"""Rows streamed into a real platform: durable, in order, told when bad, and each of them once whatever is killed."""

import json
import threading

import polars as pl
import pytest

from millrace.client import Millrace, Problem
from tests.support.platform import RunningPlatform, record
from tests.support.waiting import wait_until

EVENTS = record("readings", ("id", "long"), ("value", "double"))
KEYED = record("readings", ("id", "long"), ("value", "double"), key=("id",))


def stored(platform: RunningPlatform, tenant: str) -> pl.DataFrame:
    return pl.scan_delta(str(platform.home.table(tenant, "readings"))).sort("id").collect()


def lines(first: int, last: int, value: float = 1.0) -> bytes:
    return b"".join(b'{"id": %d, "value": %f}\n' % (number, value) for number in range(first, last + 1))


def test_streamed_rows_are_stored_and_bad_ones_told(platform: RunningPlatform) -> None:
    platform.declare("streaming", KEYED)
    told: list[dict[str, object]] = []
    with platform.client.rows.sender("streaming", "readings", on_rejected=told.extend) as stream:
        stream.send(lines(1, 100))
        stream.flush()
        stream.send(b'{"id": 5, "value": 50}\n{"id": "five", "value": 5}\nnot json\n{"id": 101, "value": 1}\n')
        summary = stream.finish()
    assert (summary.rows, summary.accepted, summary.rejected, summary.failures) == (104, 102, 2, ())
    assert [row["seq"] for row in told] == [102, 103]
    assert told[1]["raw"] == "not json"
    frame = stored(platform, "streaming")
    assert frame.height == 101
    assert frame.filter(pl.col("id") == 5)["value"].to_list() == [50.0], "the later row wins"
    assert frame["_version"].max() == summary.version


def test_rows_of_a_request_wait_for_their_end(platform: RunningPlatform) -> None:
    platform.declare("posting", KEYED)
    route = "/v1/tenants/posting/tables/readings/rows"
    body = b'[{"id": 1, "value": 1}, {"id": null, "value": 2}, {"id": 3, "value": 3}]'
    answer = platform.client.ok("POST", route, content=body, params={"wait": "30"}).json()
    assert (answer["state"], answer["accepted"], answer["rejected"]) == ("completed", 2, 1)
    assert [row["row"] for row in answer["errors"]] == [2]
    assert stored(platform, "posting")["id"].to_list() == [1, 3]
    keyed = {"Idempotency-Key": "once"}
    first = platform.client.ok("POST", route, content=lines(7, 8), headers=keyed).json()
    again = platform.client.ok("POST", route, content=lines(7, 8), headers=keyed).json()
    assert again["repeated"]
    assert again["rows"] == first["rows"] == 2
    assert platform.ended(first["import"])["state"] == "completed"
    assert stored(platform, "posting")["id"].to_list() == [1, 3, 7, 8]


def test_many_senders_share_appends_and_keep_their_own_order(platform: RunningPlatform) -> None:
    platform.declare("sharing", KEYED)

    def send(sender: int) -> None:
        with platform.client.rows.sender("sharing", "readings") as stream:
            for turn in range(50):
                stream.send([{"id": sender, "value": turn}])

    senders = [threading.Thread(target=send, args=(number,)) for number in range(10)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join(120)
    frame = stored(platform, "sharing")
    assert frame.select("id", "value").rows() == [(number, 49.0) for number in range(10)], "the last of each wins"
    assert len(platform.client.imports.list(tenant="sharing", limit=1000)) < 300


def test_the_command_streams_what_it_reads(platform: RunningPlatform) -> None:
    platform.declare("piping", KEYED)
    ran = platform.cli("stream", "piping/readings", "--json", stdin=lines(1, 3) + b"nonsense\n")
    assert ran.returncode == 0, ran.stderr
    summary = json.loads(ran.stdout)
    assert (summary["rows"], summary["accepted"], summary["rejected"]) == (4, 3, 1)
    assert json.loads(ran.stderr)["raw"] == "nonsense"
    assert stored(platform, "piping")["id"].to_list() == [1, 2, 3]
    begun = platform.cli("stream", "piping/readings", "--stream", "file-7", stdin=lines(11, 13))
    again = platform.cli("stream", "piping/readings", "--sender", "file-7", stdin=lines(11, 15, 2.0))
    assert (begun.returncode, again.returncode) == (0, 0)
    assert "3 rows are in already" in again.stderr
    frame = stored(platform, "piping").filter(pl.col("id") > 10)
    assert frame.select("id", "value").rows() == [(11, 1.0), (12, 1.0), (13, 1.0), (14, 2.0), (15, 2.0)]
    assert platform.cli("stream", "piping/nowhere", stdin=b"{}").returncode == 1
    assert platform.cli("stream", "piping/readings", "--fail-on-rejects", stdin=lines(1, 1) + b"x").returncode == 1
    assert platform.cli("stream", "piping/readings", stdin=b"x\n").returncode == 1


def test_an_exclusive_table_takes_streamed_rows_in_turn(platform: RunningPlatform) -> None:
    platform.declare("rows-in-turn", {**KEYED, "concurrency": "exclusive"})
    with platform.client.rows.sender("rows-in-turn", "readings") as stream:
        for turn in range(5):
            stream.send(lines(1, 10, turn))
            stream.flush()
        summary = stream.finish()
    assert summary.accepted == 50
    assert set(stored(platform, "rows-in-turn")["value"]) == {4.0}


def test_rows_join_a_span_and_the_span_ends_behind_them(platform: RunningPlatform) -> None:
    platform.declare("spanning-rows", KEYED)
    spans = platform.client.spans
    spans.begin("spanning-rows", "night")
    with platform.client.rows.sender("spanning-rows", "readings", span="night") as stream:
        stream.send(lines(1, 10))
        stream.flush()
        spans.end("spanning-rows", "night")
    ended = spans.wait("spanning-rows", "night", timeout=60)
    assert (ended["state"], ended["rows"]["accepted"]) == ("ended", 10)
    with (
        pytest.raises(Problem) as late,
        platform.client.rows.sender("spanning-rows", "readings", span="night") as stream,
    ):
        stream.send(lines(1, 1))
    assert late.value.code == "span_over"


def test_kill_of_the_server_while_rows_are_streamed(platform: RunningPlatform) -> None:
    """No key: a row sent twice would be there twice."""
    platform.declare("killed-stream", EVENTS)
    total, step, kills = 100_000, 100, [20_000, 60_000]
    with platform.client.rows.sender("killed-stream", "readings") as stream:
        for first in range(1, total + 1, step):
            stream.send(lines(first, first + step - 1))
            if kills and first >= kills[0]:
                least = kills.pop(0) // 2
                wait_until(lambda least=least: stream.seq >= least, 60, "some rows to be durable")  # type: ignore[misc]
                platform.part("server").kill()
        summary = stream.finish()
    assert kills == []
    assert (summary.rows, summary.rejected, summary.failures) == (total, 0, ())
    assert summary.accepted + summary.unheard == total
    wait_until(lambda: stored(platform, "killed-stream").height >= total, 60, "what nobody could be told of")
    frame = stored(platform, "killed-stream")
    assert (frame.height, frame["id"].n_unique()) == (total, total), "nothing lost, nothing twice"


def test_many_tables_with_a_trickle_each(platform: RunningPlatform) -> None:
    for number in range(40):
        platform.declare(f"trickle-{number}", EVENTS)
    with Millrace(platform.client.endpoint.url, platform.client.endpoint.token) as client:
        answers = [
            client.ok("POST", f"/v1/tenants/trickle-{n}/tables/readings/rows", content=lines(turn, turn)).json()
            for turn in range(1, 4)
            for n in range(40)
        ]
    for answer in answers:
        assert platform.ended(answer["import"])["state"] == "completed"
