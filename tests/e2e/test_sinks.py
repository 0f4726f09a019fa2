"""A table with two sinks on the real platform: the same truth in both, each with its own fate."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import polars as pl
import psycopg
import pytest

from millrace.client import Problem, Submission
from tests.support.platform import RunningPlatform, record
from tests.support.postgres import postgres
from tests.support.waiting import wait_until

FIELDS = (("id", "long"), ("name", "string"), ("age", ["null", "int"]))


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with postgres() as started:
        yield started


def people(dsn: str, **more: Any) -> dict[str, Any]:
    at = urlsplit(dsn)
    place = {"host": at.hostname, "port": at.port, "database": at.path[1:], "user": at.username}
    return record(
        "people", *FIELDS, key=("id",), sinks=["delta", {"kind": "postgres", "name": "warehouse", **place, **more}]
    )


def in_delta(platform: RunningPlatform, tenant: str) -> list[tuple[Any, ...]]:
    """None before the first commit."""
    table = platform.home.table(tenant, "people")
    if not (table / "_delta_log" / f"{0:020d}.json").exists():
        return []
    return pl.read_delta(str(table)).sort("id").select("id", "name", "age", "_version").rows()


def in_postgres(dsn: str, tenant: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(f'SELECT id, name, age, _version FROM "{tenant}".people ORDER BY id').fetchall()


def told(platform: RunningPlatform, tenant: str, kind: str) -> list[dict[str, Any]]:
    """The data of every event of a kind."""
    items = platform.client.json("GET", "/v1/events", params={"limit": "1000", "tenant": tenant})["items"]
    return [one["data"] for one in items if one["type"] == f"millrace.{kind}"]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_two_sinks_hold_the_same_rows_at_the_end(platform: RunningPlatform, dsn: str, tmp_path: Path) -> None:
    target = platform.declare("both", people(dsn))
    many = "".join(f"{n},name {n},{n % 90}\n" for n in range(150_000))
    ended = platform.send(target, write(tmp_path / "1.csv", "id,name,age\n" + many))
    assert set(ended["sinks"]) == {"delta", "warehouse"}
    assert in_postgres(dsn, "both") == in_delta(platform, "both")
    platform.send(target, write(tmp_path / "2.csv", "id,name,age,_deleted\n1,one,,\n2,,,true\n"))
    platform.send(target, write(tmp_path / "3.csv", "id,name,age\n3,three,\n"))
    rows = in_postgres(dsn, "both")
    assert rows == in_delta(platform, "both")
    assert (len(rows), rows[1][1], rows[2][1]) == (149_999, "one", "three")
    answer = platform.client.tables.truncate("both", "people")
    platform.ended(answer["import"])
    assert in_postgres(dsn, "both") == []


def test_a_dead_sink_hurts_nobody_but_its_own_table(platform: RunningPlatform, dsn: str, tmp_path: Path) -> None:
    dead = platform.declare("dead", people(dsn, port=1))
    file = write(tmp_path / "1.csv", "id,name,age\n1,a,1\n")
    begun = platform.client.imports.send_file(file, _submission(dead))
    wait_until(lambda: _sink(platform, "dead").get("reason"), 30, "the sink is parked, and says why")
    wait_until(lambda: len(in_delta(platform, "dead")) == 1, 30, "the other sink has it")
    waiting = platform.client.imports.show(begun["id"])
    assert waiting["state"] == "processing"
    assert waiting["sinks"]["warehouse"] == {"durable_chunks": 0, "parked_chunks": 1, "refused_rows": 0}
    wait_until(lambda: told(platform, "dead", "sink.parked"), 30, "who listens hears of it")
    healthy = platform.declare("healthy", people(dsn))
    assert platform.send(healthy, file)["state"] == "completed"
    done = platform.cli("sink", "waive", "dead/people", "warehouse")
    assert done.returncode == 0, done.stderr
    ended = platform.ended(begun["id"])
    assert (ended["state"], ended["waived"]) == ("completed", ["warehouse"])
    assert "warehouse" not in ended["sinks"]
    assert begun["id"] in told(platform, "dead", "sink.waived")[-1]["imports"]


def test_over_the_quota_of_parked_bytes_a_table_takes_no_more(
    platform: RunningPlatform, dsn: str, tmp_path: Path
) -> None:
    target = platform.declare("full", people(dsn, port=1, required=False))
    platform.client.tenants.apply("full", {"client": "full", "quotas": {"parked_bytes": 1}})
    file = write(tmp_path / "1.csv", "id,name,age\n1,a,1\n")
    assert platform.send(target, file)["state"] == "completed"

    def refused() -> str | None:
        try:
            platform.client.imports.send_file(file, _submission(target))
        except Problem as problem:
            return problem.code
        return None

    wait_until(lambda: refused() == "over_quota", 30, "what waits is over the quota")
    platform.client.tenants.apply("full", {"client": "full", "quotas": {"parked_bytes": "1Gi"}})
    wait_until(lambda: refused() is None, 30, "a larger quota counts at once")


def test_a_row_that_one_sink_will_not_take_is_counted_and_kept(
    platform: RunningPlatform, dsn: str, tmp_path: Path
) -> None:
    target = platform.declare("choosy", people(dsn))
    platform.send(target, write(tmp_path / "1.csv", "id,name,age\n1,a,1\n"))
    with psycopg.connect(dsn) as connection:
        connection.execute("ALTER TABLE choosy.people ADD CHECK (age < 100)")
    ended = platform.send(target, write(tmp_path / "2.csv", "id,name,age\n2,b,200\n3,c,3\n"))
    assert (ended["state"], ended["rows"]["accepted"]) == ("completed", 2)
    assert ended["sinks"]["warehouse"]["refused_rows"] == 1
    assert ended["sinks"]["delta"]["refused_rows"] == 0
    assert [row[0] for row in in_postgres(dsn, "choosy")] == [1, 3]
    assert told(platform, "choosy", "import.completed")[-1]["sinks"]["warehouse"]["refused_rows"] == 1


def test_a_sink_that_is_added_is_filled_and_one_that_is_removed_is_drained(
    platform: RunningPlatform, tmp_path: Path
) -> None:
    with postgres() as own:
        with_sink = people(own)
        without = {**with_sink, "sinks": ["delta"]}
        target = platform.declare("late", without)
        many = "".join(f"{n},name {n},{n % 90}\n" for n in range(30_000))
        platform.send(target, write(tmp_path / "1.csv", "id,name,age\n" + many))
        platform.send(target, write(tmp_path / "2.csv", "id,name,age,_deleted\n1,one,,\n2,,,true\n"))
        platform.declare("late", with_sink)
        platform.send(target, write(tmp_path / "3.csv", "id,name,age\n3,three,\n"))
        wait_until(lambda: _backfill(platform)["state"] == "done", 60, "it has caught up")
        assert _backfill(platform)["source"] in ("log", "delta"), "whichever holds it"
        rows = in_postgres(own, "late")
        assert (rows, len(rows)) == (in_delta(platform, "late"), 29_999)
        wait_until(
            lambda: "done" in [event["state"] for event in told(platform, "late", "sink.backfill")],
            30,
            "who listens hears of it",
        )
        with psycopg.connect(own, autocommit=True) as admin:
            admin.execute("ALTER DATABASE postgres SET default_transaction_read_only = on")
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
            begun = platform.client.imports.send_file(
                write(tmp_path / "4.csv", "id,name,age\n4,four,\n"), _submission(target)
            )
            wait_until(lambda: _sink(platform, "late").get("reason"), 40, "the sink is parked")
            platform.declare("late", without)
            wait_until(lambda: _sink(platform, "late")["is_draining"], 30, "it is on its way out")
            admin.execute("SET default_transaction_read_only = off")
            admin.execute("ALTER DATABASE postgres RESET default_transaction_read_only")
        assert platform.cli("sink", "resume", "late/people", "warehouse").returncode == 0
        assert platform.ended(begun["id"])["state"] == "completed"
        assert in_postgres(own, "late")[3][1] == "four", "what began before it left reaches it"
        wait_until(lambda: told(platform, "late", "sink.drained"), 40, "then it is forgotten")
        assert "warehouse" not in platform.cli("sink", "list", "late/people").stdout


def test_a_sink_that_cannot_work_is_refused_when_it_is_declared(platform: RunningPlatform, dsn: str) -> None:
    platform.client.tenants.apply("wrong", {"client": "wrong"})
    with pytest.raises(Problem, match=r"database .nowhere. does not exist"):
        platform.client.tables.apply("wrong", "people", people(dsn, database="nowhere"))
    away = platform.client.tables.apply("wrong", "people", people(dsn, port=1))
    assert "is away" in str(away["warnings"])
    assert platform.cli("sink", "check", "wrong/people", "warehouse").returncode == 1


def test_a_sink_that_heals_gets_everything_in_order(platform: RunningPlatform, tmp_path: Path) -> None:
    with postgres() as first:
        target = platform.declare("healing", people(first))
        platform.send(target, write(tmp_path / "1.csv", "id,name,age\n1,a,1\n"))
        with psycopg.connect(first, autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            admin.execute("SELECT pg_reload_conf()")
        texts = [f"id,name,age\n1,round {n},{n}\n{n + 10},new,\n" for n in range(4)]
        imports = [
            platform.client.imports.send_file(write(tmp_path / f"{n}.csv", text), _submission(target))["id"]
            for n, text in enumerate(texts)
        ]
        wait_until(lambda: _sink(platform, "healing").get("reason"), 40, "the sink is parked")
        with psycopg.connect(first, autocommit=True) as admin:
            admin.execute("SET default_transaction_read_only = off")
            admin.execute("ALTER SYSTEM SET default_transaction_read_only = off")
            admin.execute("SELECT pg_reload_conf()")
        assert platform.cli("sink", "resume", "healing/people", "warehouse").returncode == 0
        assert {platform.ended(one)["state"] for one in imports} == {"completed"}
        assert in_postgres(first, "healing") == in_delta(platform, "healing")


def test_an_optional_sink_does_not_hold_the_end(platform: RunningPlatform, dsn: str, tmp_path: Path) -> None:
    target = platform.declare("optional", people(dsn, port=1, required=False))
    ended = platform.send(target, write(tmp_path / "1.csv", "id,name,age\n1,a,1\n"))
    assert ended["state"] == "completed"
    wait_until(lambda: _sink(platform, "optional").get("reason"), 30, "its trouble is still shown")


def _submission(target: str) -> Any:
    return Submission(*target.split("/"))


def _backfill(platform: RunningPlatform) -> dict[str, Any]:
    return _sink(platform, "late").get("backfill") or {"state": None, "source": None}


def _sink(platform: RunningPlatform, tenant: str) -> dict[str, Any]:
    items = platform.client.json("GET", f"/v1/tenants/{tenant}/tables/people/sinks")["items"]
    return next(item for item in items if item["name"] == "warehouse")
