"""Files in at one end; checked, counted and durable rows at the other."""

import http.client
from pathlib import Path
from urllib.parse import urlsplit

import deltalake
import duckdb
import polars as pl
import pytest

from millrace.embed.accounts import ADMIN
from millrace.wire.client import Appender, Topics
from millrace.wire.offsets import end_offsets
from millrace.wire.topics import EVENTS, IMPORT_ERROR, PROGRESS, RAW_INPUT, TABLE_OPS, VALIDATED_INPUT
from tests.support.platform import RunningPlatform, record
from tests.support.waiting import wait_until

PEOPLE = record("people", ("id", "long"), ("name", "string"), ("age", ["null", "int"]), key=("id",))


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def people(platform: RunningPlatform, tenant: str) -> pl.DataFrame:
    return pl.scan_delta(str(platform.home.table(tenant, "people"))).sort("id").collect()


def test_rows_are_judged_counted_and_stored_with_their_place_in_the_file(
    platform: RunningPlatform, tmp_path: Path
) -> None:
    target = platform.declare("counted", PEOPLE)
    text = 'name,id,age\n"Ann, the\nfirst",1,30\nBob,two,x\nCarl,3,\n,4,5,6\n'
    ended = platform.send(target, write(tmp_path / "people.csv", text))
    assert ended["state"] == "completed"
    assert ended["rows"] == {"read": 4, "accepted": 2, "rejected": 2, "ignored": 0}
    assert ended["sinks"]["delta"]["durable_chunks"] == 1
    stored = people(platform, "counted")
    assert stored.select("id", "name", "age", "_row").rows() == [(1, "Ann, the\nfirst", 30, 1), (3, "Carl", None, 3)]
    assert set(stored["_import"]) == {ended["id"]}
    assert stored["_version"].to_list() == [ended["first_version"]] * 2
    rejected = list(platform.client.rejected.list(ended["id"]))
    assert [(row["row"], row["line"], row["raw"]) for row in rejected] == [(2, 4, "Bob,two,x"), (4, 6, ",4,5,6")]
    assert {reason["column"] for reason in rejected[0]["reasons"]} == {"id", "age"}, "all reasons, not only the first"


def test_records_that_are_none_of_ours_are_passed_over(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("unmoved", PEOPLE)
    log = platform.cluster_as(ADMIN)
    appender, topics, written = Appender(log), Topics(log), []
    for topic in (TABLE_OPS, RAW_INPUT, VALIDATED_INPUT, IMPORT_ERROR, PROGRESS):
        for partition in range(topics.partitions(topic)):
            for junk in (b"", b"junk", b'{"fact": "Judged"}', b"\x01\xff\xff\xff\xff{", b"\x01\x02\0\0\0{}"):
                written.append(appender.append(topic, b"junk", junk, partition))
    assert all(record.result(30) for record in written)
    appender.close()
    ended = platform.send(target, write(tmp_path / "people.csv", "id,name,age\n1,a,1\nx,b,2\n"))
    assert ended["rows"] == {"read": 2, "accepted": 1, "rejected": 1, "ignored": 0}
    assert ended["state"] == "completed"


def test_the_last_import_wins_in_every_reader(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("winning", PEOPLE)
    platform.send(target, write(tmp_path / "1.csv", "id,name,age\n1,a,1\n2,b,2\n3,c,3\n"))
    platform.send(target, write(tmp_path / "2.csv", "id,name,age\n2,B,\n4,D,4\n2,BB,22\n"))
    expected = [(1, "a", 1), (2, "BB", 22), (3, "c", 3), (4, "D", 4)]
    assert people(platform, "winning").select("id", "name", "age").rows() == expected
    location = platform.client.tables.show("winning", "people")["location"]
    scanned = deltalake.DeltaTable(location).scan() if hasattr(deltalake.DeltaTable, "scan") else None
    if scanned is not None:
        found = duckdb.from_arrow(scanned.read_all() if hasattr(scanned, "read_all") else scanned)
        assert found.select("id, name, age").order("id").fetchall() == expected
    answer = platform.client.query("select id, name, age from winning.people order by id")
    assert [tuple(row) for row in answer["rows"]] == expected


def test_every_import_however_small_goes_through_kafka(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("small", PEOPLE)
    for text in ("id,name,age\n1,a,1\n", "id,name,age\n"):
        before = {topic: end_offsets(platform.cluster, topic) for topic in (RAW_INPUT, VALIDATED_INPUT)}
        ended = platform.send(target, write(tmp_path / "one.csv", text))
        assert ended["state"] == "completed"
        after = {topic: end_offsets(platform.cluster, topic) for topic in before}
        for topic, offsets in before.items():
            assert sum(end for _, end in after[topic].values()) > sum(end for _, end in offsets.values()), topic


def test_partitions_do_not_grow_with_tables(platform: RunningPlatform) -> None:
    topics = (TABLE_OPS, RAW_INPUT, VALIDATED_INPUT, IMPORT_ERROR, PROGRESS, EVENTS)
    before = {topic: len(end_offsets(platform.cluster, topic)) for topic in topics}
    for number in range(10):
        platform.declare(f"growing-{number}", PEOPLE)
    assert {topic: len(end_offsets(platform.cluster, topic)) for topic in topics} == before


def test_rows_without_a_key_are_appended_once_per_import(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("appending", {**PEOPLE, "primary_key": []})
    path = write(tmp_path / "same.csv", "id,name,age\n1,a,1\n1,a,1\n")
    platform.send(target, path)
    platform.send(target, path)
    assert people(platform, "appending").height == 4
    frame = deltalake.DeltaTable(str(platform.home.table("appending", "people"))).to_pandas()
    assert len(frame) == 4


def test_the_same_idempotency_key_is_one_import(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("keyed", {**PEOPLE, "primary_key": []})
    path = write(tmp_path / "keyed.csv", "id,name,age\n1,a,1\n")
    first = platform.send(target, path, idempotency_key="once")
    second = platform.send(target, path, idempotency_key="once")
    assert first["id"] == second["id"]
    assert people(platform, "keyed").height == 1


def test_many_chunks_keep_their_row_numbers(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("long", PEOPLE)
    lines = ["id,name,age", *(f'{n},"line one\nline two {n}",{n % 100}' for n in range(1, 120_001))]
    lines[50_000] = "oops"
    ended = platform.send(target, write(tmp_path / "long.csv", "\n".join(lines)))
    assert ended["rows"] == {"read": 120_000, "accepted": 119_999, "rejected": 1, "ignored": 0}
    assert ended["chunks"]["judged"] > 1
    stored = people(platform, "long")
    assert stored.filter(pl.col("id") != pl.col("_row")).height == 0
    (rejected,) = platform.client.rejected.list(ended["id"])
    assert (rejected["row"], rejected["raw"]) == (50_000, "oops")
    assert rejected["line"] == 2 * 50_000


def test_events_tell_the_story_of_an_import_once(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("telling", PEOPLE)
    ended = platform.send(target, write(tmp_path / "told.csv", "id,name,age\n1,a,1\n"))
    events = platform.events(tenant="telling")
    mine = [event["type"] for event in events if event["subject"] == ended["id"]]
    assert mine == ["millrace.import.admitted", "millrace.import.received", "millrace.import.completed"]
    assert len({event["id"] for event in events}) == len(events)
    assert all(event["specversion"] == "1.0" for event in events)


@pytest.mark.parametrize("path", ["/metrics", "/metrics/stream"])
def test_metrics_are_there(platform: RunningPlatform, path: str) -> None:
    text = platform.client.ok("GET", path).text
    assert "millrace_" in text


def test_a_repeated_request_after_a_break_sends_the_file_from_its_start(
    platform: RunningPlatform, tmp_path: Path
) -> None:
    target = platform.declare("broken", {**PEOPLE, "primary_key": []})
    body = b"id,name,age\n" + b"".join(b"%d,%s,1\n" % (n, b"x" * 60) for n in range(60_000))
    route = f"/v1/tenants/{target.replace('/', '/tables/')}/imports"
    endpoint = urlsplit(platform.client.endpoint.url)
    connection = http.client.HTTPConnection(str(endpoint.hostname), endpoint.port)
    connection.putrequest("POST", route)
    connection.putheader("Authorization", f"Bearer {platform.client.endpoint.token}")
    connection.putheader("Idempotency-Key", "again")
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders()
    connection.send(body[: len(body) // 2])
    wait_until(lambda: platform.client.imports.list(tenant="broken", limit=1), 20, "the import to begin")
    connection.close()
    again = platform.client.ok("POST", route, content=body, headers={"Idempotency-Key": "again"}).json()
    ended = platform.ended(again["id"])
    assert ended["rows"] == {"read": 60_000, "accepted": 60_000, "rejected": 0, "ignored": 0}
    stored = people(platform, "broken")
    assert (stored.height, stored["id"].n_unique()) == (60_000, 60_000)
