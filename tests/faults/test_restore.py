"""A control store from an old backup catches up from the log to the same state; topics may get partitions under load (I1)."""

import sqlite3
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from millrace.embed.accounts import ADMIN
from millrace.wire.topics import IMPORT_ERROR, RAW_INPUT, TABLE_OPS, VALIDATED_INPUT
from tests.support.platform import RunningPlatform, record, running_platform
from tests.support.waiting import wait_until

NOTES = record("notes", ("id", "long"), ("text", "string"), key=("id",))
pytestmark = pytest.mark.slow
STATE = {
    "imports": "select id, state, kind, first_version, versions, definition, counts from imports order by id",
    "tables": "select tenant, name, definition, last_version, floor, open_imports from tables order by tenant, name",
    "spans": "select tenant, name, state, imports, counts from spans order by tenant, name",
    "events": "select id from events order by id",
}


def state(platform: RunningPlatform) -> dict[str, list[Any]]:
    with sqlite3.connect(f"file:{platform.home.store}?mode=ro", uri=True) as store:
        return {name: store.execute(question).fetchall() for name, question in STATE.items()}


def back_up(platform: RunningPlatform, to: Path) -> None:
    with sqlite3.connect(platform.home.store) as store, sqlite3.connect(to) as copy:
        store.backup(copy)


def is_quiet(platform: RunningPlatform) -> bool:
    with sqlite3.connect(f"file:{platform.home.store}?mode=ro", uri=True) as store:
        under_way = "select count(*) from imports where state not in ('completed', 'failed', 'cancelled')"
        unsent = "select count(*) from events where not published"
        return not store.execute(under_way).fetchone()[0] and not store.execute(unsent).fetchone()[0]


def work(platform: RunningPlatform, target: str, spans: range, path: Path) -> None:
    """Two ops for each span, and imports among them."""
    tenant = target.split("/", maxsplit=1)[0]
    for number in spans:
        platform.client.ok("POST", f"/v1/tenants/{tenant}/spans/night-{number}", json={})
        if number % 50 == 0:
            path.write_text(f"id,text\n{number % 100},{number}\nbad,row\n")
            platform.send(target, path, span=f"night-{number}")
        platform.client.ok("POST", f"/v1/tenants/{tenant}/spans/night-{number}/end")


def test_a_store_restored_from_an_old_backup_catches_up(tmp_path: Path) -> None:
    with running_platform(tmp_path / "home") as platform:
        target = platform.declare("restored", NOTES)
        work(platform, target, range(60), tmp_path / "file.csv")
        back_up(platform, tmp_path / "backup.db")
        work(platform, target, range(60, 600), tmp_path / "file.csv")
        wait_until(lambda: is_quiet(platform), 30, "everything has settled")
        before = state(platform)
        platform.stop()
        for leftover in platform.home.store.parent.glob("control.db*"):
            leftover.unlink()
        (tmp_path / "backup.db").replace(platform.home.store)
        platform.start()
        wait_until(lambda: state(platform) == before, 60, "the restored store to be as it was")
        path = tmp_path / "after.csv"
        path.write_text("id,text\n0,after\n")
        assert platform.send(target, path)["state"] == "completed"
        stored = pl.read_delta(str(platform.home.table("restored", "notes"))).sort("id").select("id", "text").rows()
        assert stored == [(0, "after"), (50, "550")]


def test_partitions_added_under_load_break_no_order(tmp_path: Path) -> None:
    with running_platform(tmp_path / "home") as platform:
        target = platform.declare("growing", NOTES)
        path = tmp_path / "file.csv"
        admin = AdminClient(platform.cluster_as(ADMIN).client_config())
        for round_ in range(4):
            path.write_text("id,text\n" + "".join(f"{n},{round_}\n" for n in range(200_000)))
            ended = platform.send(target, path)
            assert ended["rows"]["accepted"] == 200_000
            if round_ == 1:
                more = [NewPartitions(topic, 12) for topic in (TABLE_OPS, RAW_INPUT, VALIDATED_INPUT, IMPORT_ERROR)]
                for made in admin.create_partitions(more).values():
                    made.result()
            if round_ == 2:
                platform.stop()
                platform.start()
        new = platform.declare("newcomer", NOTES)
        path.write_text("id,text\n1,x\n")
        assert platform.send(new, path)["state"] == "completed"
        texts = pl.read_delta(str(platform.home.table("growing", "notes")))["text"]
        assert (len(texts), set(texts)) == (200_000, {"3"})
