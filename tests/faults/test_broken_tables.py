"""Tables that nobody can write, beside healthy ones, on the real platform: only their own imports wait, also when the data
plane is killed meanwhile; mended, they get every row once; given up, their imports end without them."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from millrace.client import Millrace, Problem, Submission
from tests.support.broken_tables import WAYS, garbage_entry, no_access, no_folder
from tests.support.platform import RunningPlatform, record
from tests.support.waiting import wait_until

NOTES = record("notes", ("id", "string"), ("text", "string"), key=("id",))
HEALTHY = [f"well-{number}" for number in range(3)]
GIVEN_UP = "garbage_entry"
ALL_WAYS = {**WAYS, "no_folder": no_folder}


def tenant_of(way: str) -> str:
    return f"broken-{way.replace('_', '-')}"


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{number}.csv" for number in range(4)]
    for number, path in enumerate(paths):
        path.write_text(f"id,text\nsame,round {number}\nonly {number},x\n")
    return paths


def send(platform: RunningPlatform, tenant: str, file: Path) -> str:
    return str(platform.client.imports.send_file(file, Submission(tenant, "notes"))["id"])


def rows(platform: RunningPlatform, tenant: str) -> list[tuple[str, str]]:
    return pl.read_delta(str(platform.home.table(tenant, "notes"))).select("id", "text").sort("id").rows()


def parked(platform: RunningPlatform, prefix: str) -> dict[str, dict[str, Any]]:
    """The tables in trouble of tenants whose names begin so."""
    tables = {one["table"]: one for one in platform.client.health().get("tables", ())}
    return {name: one for name, one in tables.items() if name.startswith(prefix)}


def shown_parked(platform: RunningPlatform, import_id: str) -> dict[str, Any] | None:
    document = dict(platform.client.imports.show(import_id))
    return document if document["parked_rejected_chunks"] else None


def told(platform: RunningPlatform, tenant: str, kind: str) -> list[dict[str, Any]]:
    return [one["data"] for one in platform.events(tenant=tenant) if one["type"] == f"millrace.{kind}"]


@pytest.mark.slow
def test_tables_broken_in_every_way_delay_no_other_import(platform: RunningPlatform, files: list[Path]) -> None:
    broken = {way: tenant_of(way) for way in ALL_WAYS}
    for tenant in (*broken.values(), *HEALTHY):
        platform.declare(tenant, NOTES)
        platform.ended(send(platform, tenant, files[0]))
    repairs = {way: ALL_WAYS[way](platform.home.table(tenant, "notes")) for way, tenant in broken.items()}
    # Some damage is noticed by who opens the table: a new data plane.
    platform.part("data-plane").kill()
    waiting = {way: [send(platform, tenant, files[1])] for way, tenant in broken.items()}
    ends_well(platform, files[1])
    names = {f"{tenant}/notes" for tenant in broken.values()}
    wait_until(lambda: names == parked(platform, "broken-").keys(), 60, "health names every broken table")
    health = platform.client.health()
    assert health["status"] == "ok", health["parts"]
    for tenant in broken.values():
        shown = parked(platform, tenant)[f"{tenant}/notes"]
        assert f"lake/{tenant}/notes" in shown["reason"]
        assert str(platform.home.root) not in shown["reason"]
        assert f"sink resume {tenant}/notes delta" in shown["remedy"]
        assert shown["reason"] in platform.client.sinks.list(tenant, "notes")[0]["reason"]
        wait_until(lambda tenant=tenant: told(platform, tenant, "sink.parked"), 30, "who listens hears of it")
    others = Millrace(platform.client.endpoint.url, "nobody")
    with pytest.raises(Problem):
        others.tenants.list()
    assert "tables" not in others.health(), "strangers learn no names"

    platform.part("data-plane").kill()
    for way, tenant in broken.items():
        waiting[way].append(send(platform, tenant, files[2]))
    ends_well(platform, files[2])
    for way, ids in waiting.items():
        assert {platform.client.imports.show(one)["state"] for one in ids} <= {"processing", "stalled"}, way

    given_up = waiting.pop(GIVEN_UP)
    assert platform.cli("sink", "waive", f"{broken[GIVEN_UP]}/notes", "delta").returncode == 0
    assert {tuple(platform.ended(one)["waived"]) for one in given_up} == {("delta",)}
    for way in waiting:
        repairs[way]()
        assert platform.cli("sink", "resume", f"{broken[way]}/notes", "delta").returncode == 0
    for way, ids in waiting.items():
        ended = [platform.ended(one) for one in ids]
        assert {one["state"] for one in ended} == {"completed"}, way
        assert {one["rows"]["accepted"] for one in ended} == {2}, way
        everything = [("only 0", "x"), ("only 1", "x"), ("only 2", "x"), ("same", "round 2")]
        assert rows(platform, broken[way]) == everything, way
    wait_until(lambda: not parked(platform, "broken-"), 90, "nothing is in trouble any more")
    repairs[GIVEN_UP]()
    assert platform.ended(send(platform, broken[GIVEN_UP], files[3]))["state"] == "completed"
    assert rows(platform, broken[GIVEN_UP]) == [("only 0", "x"), ("only 3", "x"), ("same", "round 3")]


def ends_well(platform: RunningPlatform, file: Path) -> None:
    begun = [send(platform, tenant, file) for tenant in HEALTHY]
    assert {platform.ended(one)["state"] for one in begun} == {"completed"}


def test_rejected_rows_that_cannot_be_kept_delay_their_own_table(
    platform: RunningPlatform, tmp_path: Path, files: list[Path]
) -> None:
    numbers = record("notes", ("id", "long"), ("text", "string"), key=("id",))
    bad = tmp_path / "bad.csv"
    bad.write_text("id,text\n1,fine\nx,rejected\n")
    for tenant in ("rejects-stuck", "rejects-given-up", "rejects-well"):
        platform.declare(tenant, numbers)
        platform.ended(send(platform, tenant, bad))
    repair = no_folder(platform.home.table_errors("rejects-stuck", "notes"))
    no_access(platform.home.table_errors("rejects-given-up", "notes"))
    bad.write_text("id,text\n2,fine\ny,rejected\n")
    stuck, given_up = send(platform, "rejects-stuck", bad), send(platform, "rejects-given-up", bad)
    assert platform.ended(send(platform, "rejects-well", bad))["state"] == "completed"
    wait_until(lambda: len(parked(platform, "rejects-")) == 2, 60, "both are named")
    assert parked(platform, "rejects-")["rejects-stuck/notes"]["sink"] == "errors"
    waiting = wait_until(lambda: shown_parked(platform, stuck), 30, "its status tells of it")
    assert (waiting["parked_rejected_chunks"], waiting["sinks"]["delta"]["parked_chunks"]) == (1, 0)
    platform.client.sinks.waive("rejects-given-up", "notes", "errors")
    assert platform.ended(given_up)["waived"] == ["errors"]
    assert platform.client.imports.show(stuck)["state"] in ("processing", "stalled")
    repair()
    platform.client.sinks.resume("rejects-stuck", "notes", "errors")
    ended = platform.ended(stuck)
    assert (ended["state"], ended["rows"]["rejected"], ended["parked_rejected_chunks"]) == ("completed", 1, 0)
    stored = pl.read_delta(str(platform.home.table_errors("rejects-stuck", "notes")))
    assert sorted(stored.group_by("_import").len()["len"].to_list()) == [1, 1]
    wait_until(lambda: not parked(platform, "rejects-"), 90, "nothing is in trouble any more")


def test_a_tenant_whose_tables_cannot_be_written_can_be_erased(platform: RunningPlatform, files: list[Path]) -> None:
    tenant = "erased-broken"
    platform.declare(tenant, NOTES)
    platform.ended(send(platform, tenant, files[0]))
    garbage_entry(platform.home.table(tenant, "notes"))
    send(platform, tenant, files[1])
    wait_until(lambda: parked(platform, tenant), 60, "it is in trouble")
    platform.client.tenants.delete(tenant, confirm=tenant)
    receipt = platform.client.tenants.erase(tenant, confirm=tenant, now=True, wait=5)
    assert not platform.home.table(tenant, "notes").exists()
    assert not any("notes" in one for one in receipt["remains"]), "nothing of it is left"
    wait_until(lambda: not parked(platform, tenant), 90, "nothing waits for it")
    assert platform.declare(tenant, NOTES)
    assert platform.ended(send(platform, tenant, files[2]))["state"] == "completed"
    assert rows(platform, tenant) == [("only 2", "x"), ("same", "round 2")]


def test_a_tenant_whose_keys_are_out_of_reach_waits_alone(platform: RunningPlatform, files: list[Path]) -> None:
    platform.client.tenants.apply("keyless", {"client": "keyless", "encryption": True})
    platform.client.tables.apply("keyless", "notes", NOTES)
    platform.declare("keys-well", NOTES)
    platform.ended(send(platform, "keyless", files[0]))
    # The next one remembers no key.
    platform.part("data-plane").kill()
    sealed, cancelled = send(platform, "keyless", files[1]), send(platform, "keyless", files[2])
    key = platform.home.kms / "keyless.json"
    away = key.rename(key.with_suffix(".away"))
    assert platform.ended(send(platform, "keys-well", files[1]))["state"] == "completed"
    assert platform.client.imports.show(sealed)["state"] in ("processing", "stalled")
    wait_until(lambda: len(list(platform.home.held_chunks("keyless").glob("*.chunk"))) == 2, 60, "its chunks are held")
    assert platform.ended(send(platform, "keys-well", files[2]))["state"] == "completed"
    platform.client.imports.cancel(cancelled)
    platform.part("data-plane").kill()
    assert platform.ended(send(platform, "keys-well", files[3]))["state"] == "completed"
    assert platform.client.imports.show(cancelled)["state"] == "stopping", "its chunk may have been judged before"
    away.rename(key)
    ended = platform.ended(sealed)
    assert (ended["state"], ended["rows"]["accepted"]) == ("completed", 2)
    ended = platform.ended(cancelled)
    assert (ended["state"], ended["rows"]["accepted"]) == ("cancelled", 2)
    assert rows(platform, "keyless") == [("only 0", "x"), ("only 1", "x"), ("only 2", "x"), ("same", "round 2")]
    wait_until(lambda: not platform.home.held_chunks("keyless").exists(), 60, "nothing is held")
