"""The table log on the real platform: order, turns, schema change, deletes, floors, budgets, rejected rows that come back."""

import sqlite3
import threading
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from millrace.client import Problem
from tests.support.platform import RunningPlatform, record
from tests.support.waiting import wait_until

ID, NAME, AGE = ("id", "long"), ("name", "string"), ("age", ["null", "int"])
PEOPLE = record("people", ID, NAME, AGE, key=("id",))


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def rows(platform: RunningPlatform, tenant: str, *columns: str) -> list[tuple[Any, ...]]:
    table = pl.scan_delta(str(platform.home.table(tenant, "people"))).sort("id").collect()
    return table.select(*columns).rows()


def ended(platform: RunningPlatform, answer: dict[str, Any]) -> dict[str, Any]:
    return platform.ended(answer["import"])


def test_deleted_rows_stay_deleted_until_a_newer_one_comes(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("deleting", PEOPLE)
    platform.send(target, write(tmp_path / "1.csv", "id,name,age\n1,a,1\n2,b,2\n3,c,3\n"))
    gone = platform.send(target, write(tmp_path / "keys.csv", "id\n2\n3\n9\n"), kind="delete")
    assert (gone["state"], gone["kind"], gone["rows"]["accepted"]) == ("completed", "delete", 3)
    assert rows(platform, "deleting", "id", "name") == [(1, "a")]
    platform.send(target, write(tmp_path / "2.csv", "id,name,age,_deleted\n3,C,,false\n1,x,,true\n"))
    assert rows(platform, "deleting", "id", "name") == [(3, "C")]


def test_a_truncated_table_takes_only_what_comes_after(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("emptied", PEOPLE)
    platform.send(target, write(tmp_path / "1.csv", "id,name,age\n1,a,1\n"))
    answer = platform.client.tables.truncate("emptied", "people")
    assert ended(platform, answer)["state"] == "completed"
    assert rows(platform, "emptied", "id") == []
    platform.send(target, write(tmp_path / "2.csv", "id,name,age\n2,b,\n"))
    assert rows(platform, "emptied", "id") == [(2,)]


def test_a_dropped_table_comes_back_or_begins_anew(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("dropping", PEOPLE)
    platform.send(target, write(tmp_path / "1.csv", "id,name,age\n1,a,1\n"))
    platform.client.tables.drop("dropping", "people")
    with pytest.raises(Problem, match="no table"):
        platform.client.tables.show("dropping", "people")
    platform.client.tables.restore("dropping", "people")
    assert platform.client.query("select count(*) from dropping.people")["rows"] == [[1]]
    platform.client.tables.drop("dropping", "people")
    again = platform.client.tables.apply("dropping", "people", record("people", ID, ("other", "string"), key=("id",)))
    assert again["generation"] == 2
    platform.send(target, write(tmp_path / "2.csv", "id,other\n2,b\n"))
    assert rows(platform, "dropping", "id", "other") == [(2, "b")]


def test_rows_of_old_and_new_versions_meet_under_the_present_shape(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("shaped", PEOPLE)
    platform.send(target, write(tmp_path / "1.csv", "id,name,age\n1,a,1\n2,b,\n"))
    renamed = {"name": "title", "type": "string", "aliases": ["name"]}
    changed = record("people", ID, AGE, key=("id",))
    changed["schema"]["fields"][1]["type"] = ["null", "long"]
    changed["schema"]["fields"] += [renamed, {"name": "city", "type": "string", "default": "?"}]
    answer = platform.client.tables.apply("shaped", "people", changed)
    assert (answer["revision"], answer["changed"]) == (2, True)
    ended(platform, answer)
    platform.send(target, write(tmp_path / "2.csv", "id,title,age,city\n3,c,5000000000,Oulu\n"))
    platform.send(target, write(tmp_path / "old.csv", "id,name,age\n4,d,4\n"))
    expected = [(1, "a", 1, "?"), (2, "b", None, "?"), (3, "c", 5_000_000_000, "Oulu"), (4, "d", 4, "?")]
    assert rows(platform, "shaped", "id", "title", "age", "city") == expected
    with pytest.raises(Problem) as refused:
        platform.client.tables.apply("shaped", "people", record("people", ID, ("age", ["null", "int"]), key=("id",)))
    assert "age" in str(refused.value)


def test_on_an_exclusive_table_everything_takes_turns(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("turns", {**PEOPLE, "concurrency": "exclusive"})
    partly = platform.send(target, write(tmp_path / "1.csv", "id,name,age\n9,zeroth,9\nx,rejected,\n"))
    held = platform.client.ok(
        "POST", "/v1/tenants/turns/tables/people/uploads", headers={"Tus-Resumable": "1.0.0", "Upload-Length": "30"}
    )
    first = held.headers["Location"].rsplit("/", 1)[1]
    with pytest.raises(Problem) as refused:
        platform.client.tables.truncate("turns", "people", wait_turn=False)
    assert refused.value.code == "under_way"
    done: list[dict[str, Any]] = []
    second = threading.Thread(
        target=lambda: done.append(platform.send(target, write(tmp_path / "2.csv", "id,name,age\n1,second,2\n")))
    )
    second.start()
    wait_until(lambda: _waits(platform), 30, "the second import stands in line")
    assert not done
    replayed: list[dict[str, Any]] = []
    third = threading.Thread(target=lambda: replayed.append(platform.client.rejected.replay(partly["id"])))
    third.start()
    wait_until(lambda: _waits(platform, 2), 30, "the replay stands behind it")
    platform.client.imports.cancel(first)
    assert platform.ended(first)["state"] == "cancelled"
    second.join(60)
    third.join(60)
    assert done[0]["state"] == "completed"
    assert rows(platform, "turns", "id", "name") == [(1, "second"), (9, "zeroth")]
    assert ended(platform, replayed[0])["rows"]["rejected"] == 1, "sent when its turn had come, judged again"


def _waits(platform: RunningPlatform, ops: int = 1) -> bool:
    with sqlite3.connect(f"file:{platform.home.store}?mode=ro", uri=True) as store:
        waiting: int = store.execute("select count(*) from waiting").fetchone()[0]
        return waiting >= ops


def test_an_import_stops_when_its_error_budget_is_blown(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("stopping", {**PEOPLE, "on_error": "stop"})
    good = "".join(f"{number},{'n' * 50},\n" for number in range(200_000))
    lines = good.splitlines(keepends=True)
    text = "".join(["id,name,age\n", *lines[:10_000], "bad,row,\n", *lines[10_000:]])
    stopped = platform.send(target, write(tmp_path / "bad.csv", text))
    counts = stopped["rows"]
    assert stopped["state"] == "failed"
    assert stopped["error"]["code"] == "too_many_rejected"
    assert counts["accepted"] + counts["rejected"] + counts["ignored"] == counts["read"]
    assert counts["rejected"] == 1


def test_an_atomic_import_shows_all_of_itself_or_nothing(platform: RunningPlatform, tmp_path: Path) -> None:
    document = {**PEOPLE, "publish": "atomic", "on_error": "stop", "max_rejected": 1}
    target = platform.declare("atomic", document)
    many = "".join(f"{number},{'n' * 40},\n" for number in range(100_000))
    shown = platform.send(target, write(tmp_path / "good.csv", "id,name,age\n" + many + "x,one is allowed,\n"))
    assert (shown["state"], shown["rows"]["accepted"]) == ("completed", 100_000)
    assert len(rows(platform, "atomic", "id")) == 100_000
    failed = platform.send(target, write(tmp_path / "bad.csv", "id,name,age\n900001,new,\nx,,\ny,,\n"))
    assert failed["state"] == "failed"
    assert rows(platform, "atomic", "id")[-1] == (99_999,)


def test_rejected_rows_come_back_once_and_never_beat_newer_ones(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("back", record("people", ID, NAME, ("age", "int"), key=("id",)))
    text = "id,name,age\n1,a,1\n2,b,\n3,c,x\n4,d,\n4,e,\n"
    first = platform.send(target, write(tmp_path / "1.csv", text))
    assert first["rows"]["rejected"] == 4
    platform.send(target, write(tmp_path / "2.csv", "id,name,age\n2,newer,22\n"))
    ended(platform, platform.client.tables.apply("back", "people", PEOPLE))
    answer = platform.client.rejected.replay(first["id"])
    assert answer["only_amendable"] == 2, "two rows of the key 4: nothing says which is the later"
    again = ended(platform, answer)
    assert (again["kind"], again["of"], again["rows"]["accepted"], again["rows"]["rejected"]) == (
        "replay", first["id"], 1, 1,
    )  # fmt: skip
    assert rows(platform, "back", "id", "name") == [(1, "a"), (2, "newer")]
    with pytest.raises(Problem) as claimed:
        platform.client.rejected.replay(first["id"], rows=[2])
    assert claimed.value.code in ("claimed", "nothing_to_replay")
    mended = platform.client.rejected.amend(first["id"], write(tmp_path / "mended.csv", "_row,id,name,age\n5,4,e,4\n"))
    assert (mended["closed"], mended["open"]) == (1, 1)
    assert platform.ended(mended["id"])["state"] == "completed"
    states = platform.client.imports.show(first["id"])["rejected_rows"]
    assert states == {"open": 1, "amended": 1, "replayed": 2, "discarded": 0}
    assert rows(platform, "back", "id", "name") == [(1, "a"), (2, "newer"), (4, "e")]
    given_up = platform.client.rejected.discard(again["id"])
    assert given_up["rows"] == 1
    with pytest.raises(Problem):
        platform.client.rejected.discard(again["id"])
