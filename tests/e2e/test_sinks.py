"""A table with two sinks on the real platform: the same truth in both, each with its own fate."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import polars as pl
import psycopg
import pytest

from millrace.client import Submission
from millrace.client.changing import change_table
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
    return (
        pl.read_delta(str(platform.home.table(tenant, "people")))
        .sort("id")
        .select("id", "name", "age", "_version")
        .rows()
    )


def in_postgres(dsn: str, tenant: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(f'SELECT id, name, age, _version FROM "{tenant}".people ORDER BY id').fetchall()


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
    answer = change_table(platform.client, "both", "people", "truncate", wait_turn=True)
    platform.ended(answer["import"])
    assert in_postgres(dsn, "both") == []


def test_a_dead_sink_hurts_nobody_but_its_own_table(platform: RunningPlatform, dsn: str, tmp_path: Path) -> None:
    dead = platform.declare("dead", people(dsn, port=1))
    file = write(tmp_path / "1.csv", "id,name,age\n1,a,1\n")
    begun = platform.client.upload_file(file, _submission(dead))
    wait_until(lambda: _sink(platform, "dead").get("reason"), 30, "the sink is parked, and says why")
    assert platform.client.import_(begun["id"])["state"] == "processing"
    wait_until(lambda: len(in_delta(platform, "dead")) == 1, 30, "the other sink has it")
    healthy = platform.declare("healthy", people(dsn))
    assert platform.send(healthy, file)["state"] == "completed"
    done = platform.cli("sink", "waive", "dead/people", "warehouse")
    assert done.returncode == 0, done.stderr
    ended = platform.ended(begun["id"])
    assert ended["state"] == "completed"
    assert "warehouse" not in ended["sinks"]


def test_a_sink_that_heals_gets_everything_in_order(platform: RunningPlatform, tmp_path: Path) -> None:
    with postgres() as first:
        target = platform.declare("healing", people(first))
        platform.send(target, write(tmp_path / "1.csv", "id,name,age\n1,a,1\n"))
        with psycopg.connect(first, autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            admin.execute("SELECT pg_reload_conf()")
        texts = [f"id,name,age\n1,round {n},{n}\n{n + 10},new,\n" for n in range(4)]
        imports = [
            platform.client.upload_file(write(tmp_path / f"{n}.csv", text), _submission(target))["id"]
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


def _sink(platform: RunningPlatform, tenant: str) -> dict[str, Any]:
    items = platform.client.json("GET", f"/v1/tenants/{tenant}/tables/people/sinks")["items"]
    return next(item for item in items if item["name"] == "warehouse")
