"""An import that does not go on says what it waits for, over REST and in events; one that goes on says nothing."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import event, insert, update
from starlette.testclient import TestClient

from millrace.api.health import PlatformHealth
from millrace.api.jobs import wait_watch
from millrace.api.jobs.wait_watch import WaitWatch
from millrace.declare.table import parse_table
from millrace.exchange.queues import ParkedRow, Queues
from millrace.model.imports import HELD, PROCESSING
from millrace.model.names import new_id
from millrace.model.ops.imports import BeginImport
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from millrace.model.queues import QueueKey, QueueState, own_queue
from millrace.model.sinks import ERROR_STORE
from millrace.store import tables as t
from tests.support.platform import record
from tests.support.waiting import wait_until
from tests.support.whole_app import TOKEN, AppPlatform, whole_app

LONG_AGO_US = 60_000_000


class Scene:
    def __init__(self, platform: AppPlatform, client: TestClient) -> None:
        self.platform = platform
        self.client = client
        platform.apply(DefineTenant("acme", agreement={}))

    def table(self, name: str = "notes", **policies: Any) -> None:
        document = {**record(name, ("id", "long"), key=("id",)), **policies}
        self.platform.apply(DefineTable("acme", name, declaration=parse_table(document).to_dict()))
        with self.platform.store.write() as connection:
            # The definition has reached the sinks.
            connection.execute(update(t.imports).values(state="completed"))
            connection.execute(update(t.tables).values(open_imports=0))

    def begin(self, table: str = "notes") -> str:
        op = BeginImport("acme", table, id=new_id("imp"))
        self.platform.apply(op)
        return op.id

    def change(self, import_id: str, quiet_us: int = LONG_AGO_US, **columns: Any) -> None:
        columns |= {"touched_us": time.time_ns() // 1000 - quiet_us}
        with self.platform.store.write() as connection:
            connection.execute(update(t.imports).where(t.imports.c.id == import_id).values(columns))

    def processing(self, table: str = "notes", **columns: Any) -> str:
        """All of its one chunk is judged, and no sink has it yet."""
        import_id = self.begin(table)
        counts = {"chunks": 1, "read": 2, "accepted": 1, "rejected": 1, "ignored": 0, "failed_chunks": 0}
        announced = {"chunks": 1, "rows": 2, "bytes": 9}
        self.change(import_id, state=PROCESSING, announced=announced, counts=counts, **columns)
        return import_id

    def park(self, key: QueueKey, reason: str = "connection refused") -> None:
        queues, now = Queues(self.platform.store), time.time()
        queues.park([ParkedRow(key, 1, "x", 1, 5, "{}")])
        queues.finish(key, state=QueueState(parked_since=now - 90, reason=reason, tries=4, next_try=now + 30))

    def document(self, import_id: str) -> Any:
        answer = self.client.get(f"/v1/imports/{import_id}", headers={"Authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def waiting_for(self, import_id: str) -> Any:
        listed = self.client.get("/v1/imports?state=requested", headers={"Authorization": f"Bearer {TOKEN}"}).json()
        listed["items"] += self.client.get("/v1/imports", headers={"Authorization": f"Bearer {TOKEN}"}).json()["items"]
        found = self.document(import_id)["waiting_for"]
        assert found == next(each["waiting_for"] for each in listed["items"] if each["id"] == import_id)
        return found


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with whole_app(tmp_path) as (platform, client):
        yield Scene(platform, client)


def test_a_sink_that_takes_nothing_is_named_with_its_reason_and_the_next_try(scene: Scene) -> None:
    scene.table()
    import_id = scene.processing()
    assert scene.waiting_for(import_id) is None
    scene.park(own_queue("delta", "acme", "notes"), "the disk is full")
    found = scene.waiting_for(import_id)
    assert (found["kind"], found["sink"]) == ("sink", "delta")
    assert "sink delta, which has taken nothing since " in found["text"]
    assert ": the disk is full. The next try, number 5, is at " in found["text"]
    assert "millrace sink resume acme/notes delta" in found["remedy"]
    assert found["since"] < found["next_try"]


def test_a_sink_that_already_has_the_rows_is_not_waited_for(scene: Scene) -> None:
    scene.table()
    import_id = scene.processing(durable={"delta": 1})
    scene.park(own_queue("delta", "acme", "notes"))
    assert scene.waiting_for(import_id) is None
    scene.park(own_queue(ERROR_STORE, "acme", "notes"))
    assert scene.waiting_for(import_id)["sink"] == ERROR_STORE


def test_a_data_plane_that_is_away_is_the_reason_before_any_sink(scene: Scene) -> None:
    scene.table()
    import_id = scene.processing()
    scene.park(own_queue("delta", "acme", "notes"))
    scene.platform.data_plane = "It is starting."
    found = scene.waiting_for(import_id)
    assert (found["kind"], found["text"]) == ("data_plane", "the data plane: It is starting.")


def test_an_import_in_line_names_the_one_before_it(scene: Scene) -> None:
    scene.table(concurrency="exclusive")
    first, second = scene.begin(), new_id("imp")
    asked = {"id": second, "kind": BeginImport.KIND, "tenant": "acme", "subject": "notes", "applied": False}
    with scene.platform.store.write() as connection:
        connection.execute(insert(t.requests).values(**asked, requested_us=1, result={"waiting": True}))
    found = scene.waiting_for(second)
    assert (found["kind"], found["import"]) == ("turn", first)
    assert found["text"] == f"its turn: acme/notes takes one import at a time, and {first} is under way"


def test_an_upload_of_which_nothing_arrives_says_so_and_one_that_is_slowed_down_says_why(scene: Scene) -> None:
    scene.table()
    import_id = scene.begin()
    assert scene.waiting_for(import_id) is None
    scene.change(import_id, begun_us=1)
    assert scene.waiting_for(import_id)["kind"] == "upload"
    scene.platform.quotas.record_throttle("acme", 0.5, import_id)
    assert scene.waiting_for(import_id)["kind"] == "quota"


def test_a_held_import_waits_for_someone(scene: Scene) -> None:
    scene.table()
    import_id = scene.processing()
    scene.change(import_id, state=HELD, error={"code": "held", "message": "Rule r is broken.", "remedy": "Release it."})
    found = scene.waiting_for(import_id)
    assert (found["kind"], found["remedy"]) == ("rule", "Release it.")
    assert "Rule r is broken." in found["text"]


def test_keys_out_of_reach_are_the_reason_while_chunks_are_not_judged(scene: Scene) -> None:
    scene.table()
    import_id = scene.processing()
    scene.platform.exchange.held_chunks.hold("acme", import_id, 0, b"x")
    assert scene.waiting_for(import_id) is None
    scene.change(import_id, counts={"chunks": 0, "read": 0, "accepted": 0, "rejected": 0, "ignored": 0})
    assert scene.waiting_for(import_id)["kind"] == "key"


def test_an_import_that_goes_on_or_is_over_waits_for_nothing(scene: Scene) -> None:
    scene.table()
    scene.platform.data_plane = "The data plane does not answer."
    import_id = scene.processing()
    scene.change(import_id, quiet_us=0)
    assert scene.waiting_for(import_id) is None
    scene.change(import_id, state="completed")
    assert scene.waiting_for(import_id) is None


def test_what_is_read_for_a_list_does_not_grow_with_the_tables_that_exist(scene: Scene) -> None:
    def statements() -> int:
        seen: list[str] = []
        listening = scene.platform.store._engine, "before_cursor_execute", lambda *given: seen.append(given[2])
        event.listen(*listening)
        scene.client.get("/v1/imports?limit=5", headers={"Authorization": f"Bearer {TOKEN}"})
        event.remove(*listening)
        return len(seen)

    scene.table()
    for _ in range(5):
        scene.processing()
    before = statements()
    for number in range(20):
        scene.table(f"other{number}")
        scene.park(QueueKey("postgres", "acme", f"other{number}", "mirror"))
    assert statements() <= before


def told(scene: Scene) -> list[dict[str, Any]]:
    answer = scene.client.get("/v1/events?limit=1000", headers={"Authorization": f"Bearer {TOKEN}"}).json()
    return [each for each in answer["items"] if each["type"] == "millrace.import.waiting"]


def test_an_event_tells_of_the_first_import_that_waits_and_then_ever_more_rarely(scene: Scene) -> None:
    clock = [1000.0]
    watch = WaitWatch(scene.platform.store, scene.platform.outlook, scene.platform.apply, lambda: clock[0])
    scene.table()
    first = scene.processing()
    for _ in range(9):
        scene.processing()
    watch.look()
    assert told(scene) == []
    scene.park(own_queue("delta", "acme", "notes"), "the disk is full")
    for _ in range(5):
        watch.look()
        clock[0] += 1
    (event_,) = told(scene)
    assert event_["subject"] == first
    assert (event_["data"]["table"], event_["data"]["imports"]) == ("acme/notes", 10)
    assert event_["data"]["waiting_for"]["sink"] == "delta"
    moments = []
    for _ in range(20_000):
        clock[0] += 5
        watch.look()
        if len(told(scene)) > 1 + len(moments):
            moments.append(clock[0])
            if len(moments) == 3:
                break
        clock[0] += 95
    pauses = [later - before for before, later in zip([1000.0, *moments], moments, strict=False)]
    assert pauses == sorted(pauses)
    assert pauses[0] >= wait_watch.FIRST_PAUSE_SECONDS
    assert pauses[-1] >= 2 * wait_watch.FIRST_PAUSE_SECONDS


def test_many_imports_of_one_tenant_do_not_hide_those_of_another(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_watch, "MOST_LOOKED_AT", 4)
    scene.table()
    for _ in range(9):
        scene.processing()
    document = record("notes", ("id", "long"), key=("id",))
    scene.platform.apply(DefineTenant("rival", agreement={}))
    scene.platform.apply(DefineTable("rival", "notes", declaration=parse_table(document).to_dict()))
    op = BeginImport("rival", "notes", id=new_id("imp"))
    scene.platform.apply(op)
    counts = {"chunks": 1, "read": 1, "accepted": 1, "rejected": 0, "ignored": 0, "failed_chunks": 0}
    scene.change(op.id, state=PROCESSING, announced={"chunks": 1, "rows": 1, "bytes": 9}, counts=counts)
    for tenant in ("acme", "rival"):
        scene.park(own_queue("delta", tenant, "notes"))
    WaitWatch(scene.platform.store, scene.platform.outlook, scene.platform.apply).look()
    assert {event_["data"]["table"] for event_ in told(scene)} == {"acme/notes", "rival/notes"}


def test_another_cause_is_told_at_once(scene: Scene) -> None:
    watch = WaitWatch(scene.platform.store, scene.platform.outlook, scene.platform.apply)
    scene.table()
    scene.processing()
    scene.park(own_queue("delta", "acme", "notes"))
    watch.look()
    scene.platform.data_plane = "It is starting."
    watch.look()
    assert [each["data"]["waiting_for"]["kind"] for each in told(scene)] == ["sink", "data_plane"]


def test_a_data_plane_that_hangs_holds_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answer = list[str](), Event()

    def hang(self: PlatformHealth) -> str:
        asked.append("once")
        assert answer.wait(20)
        return "The data plane does not answer."

    monkeypatch.setattr(PlatformHealth, "_data_plane", hang)
    absent: Any = None
    exchange: Any = SimpleNamespace(data_plane=SimpleNamespace(metrics_port=lambda: 1))
    health = PlatformHealth(absent, absent, absent, exchange, absent, absent)
    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(health.data_plane)
        wait_until(lambda: asked, 20, "the first to ask")
        others = [threads.submit(health.data_plane) for _ in range(3)]
        try:
            assert [other.result(5) for other in others] == ["ok"] * 3
        finally:
            answer.set()
        assert first.result(20) == health.data_plane() == "The data plane does not answer."
    assert asked == ["once"]
