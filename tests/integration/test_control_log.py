"""The table log on a real broker: nothing is evaluated before it went through Kafka; a replay gives the same state."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from millrace.api.documents import import_document
from millrace.api.platform import Platform
from millrace.control.controller import Controller
from millrace.control.definitions import DefinitionFiles
from millrace.embed.broker import Broker
from millrace.model import ops
from millrace.model.declaration import parse_table
from millrace.model.errors import Clash, Missing
from millrace.model.names import Home, new_id
from millrace.model.ops import Applied
from millrace.settings import Settings
from millrace.store import tables as t
from millrace.store.engine import Store
from millrace.wire.client import Cluster, LogReader, Topics
from millrace.wire.offsets import end_offsets
from millrace.wire.envelope import pack
from millrace.wire.topics import EVENTS, RAW_INPUT, TABLE_OPS
from tests.support.waiting import wait_until

NOTES = {
    "schema": {"type": "record", "name": "notes", "fields": [{"name": "id", "type": "long"}]},
    "primary_key": ["id"],
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.fixture
def platform(broker: Broker, tmp_path: Path) -> Iterator[Callable[..., Platform]]:
    made: list[Platform] = []

    def make(home: str, *, controller: bool = True) -> Platform:
        one = Platform(Settings(home=tmp_path / home), Cluster(broker.bootstrap_servers))
        one.start(controller=controller)
        made.append(one)
        return one

    yield make
    for one in made:
        one.stop()


def declare(platform: Platform, tenant: str) -> None:
    async def both() -> None:
        await platform.applied(ops.DEFINE_TENANT, tenant, tenant, {"agreement": {"client": tenant}})
        await platform.applied(ops.DEFINE_TABLE, tenant, "notes", {"declaration": parse_table(NOTES).to_dict()})

    asyncio.run(both())


def begin(platform: Platform, tenant: str, **body: Any) -> str:
    applied = asyncio.run(platform.applied(ops.BEGIN_IMPORT, tenant, "notes", body, new_id("imp")))
    return str(applied.result["import"])


def rows(store: Store, table: Any, *columns: str) -> list[tuple[Any, ...]]:
    with store.read() as connection:
        return [
            tuple(row)
            for row in connection.execute(select(*(table.c[name] for name in columns)).order_by(table.c[columns[0]]))
        ]


def test_without_a_controller_a_definition_and_an_import_stay_requested(
    platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millrace.api.platform.ANSWER_SECONDS", 0.3)
    waiting = platform("waiting", controller=False)
    before = end_offsets(waiting.cluster, TABLE_OPS)
    tenant = "patient"
    body = {"declaration": parse_table(NOTES).to_dict()}
    op_id = asyncio.run(waiting.submit(ops.DEFINE_TABLE, tenant, "notes", body))
    assert isinstance(op_id, str), "nobody can have answered"
    import_id = asyncio.run(waiting.submit(ops.BEGIN_IMPORT, tenant, "notes", {}, new_id("imp")))
    assert isinstance(import_id, str)
    after = end_offsets(waiting.cluster, TABLE_OPS)
    assert sum(end for _, end in after.values()) == sum(end for _, end in before.values()) + 2
    with waiting.store.read() as connection:
        assert import_document(connection, import_id)["state"] == "requested"
        assert connection.execute(select(t.requests.c.applied).where(t.requests.c.id == op_id)).scalar() is False


def test_the_same_log_gives_the_same_state_versions_and_events(
    platform: Callable[..., Platform], tmp_path: Path
) -> None:
    first = platform("first")
    declare(first, "twice")
    imports = [begin(first, "twice", idempotency_key=f"k{n % 3}") for n in range(6)]
    assert len(set(imports)) == 3
    asyncio.run(first.applied(ops.CANCEL_IMPORT, "twice", imports[0], {}))
    wait_until(lambda: not rows(first.store, t.closings, "import_id"), 10, "the markers to be sent")
    second = platform("second")
    wait_until(
        lambda: (
            rows(second.store, t.positions, "partition", "next_offset", "log")
            >= [row for row in rows(first.store, t.positions, "partition", "next_offset", "log") if row[2] == TABLE_OPS]
        ),
        20,
        "the second store to catch up",
    )
    columns = ("id", "state", "first_version", "versions", "definition", "idempotency_key")
    wait_until(
        lambda: rows(second.store, t.imports, *columns) == rows(first.store, t.imports, *columns), 10, "equal imports"
    )
    assert [row[0] for row in rows(second.store, t.events, "id")] == [
        row[0] for row in rows(first.store, t.events, "id")
    ]
    assert rows(second.store, t.tables, "name", "last_version") == rows(first.store, t.tables, "name", "last_version")


def test_a_second_controller_on_the_same_store_cannot_apply_an_op_again(
    platform: Callable[..., Platform], tmp_path: Path
) -> None:
    one = platform("alone", controller=False)
    applied: list[Applied] = []
    files = DefinitionFiles(Home(tmp_path / "alone"))
    controllers = [Controller(one.store, one.cluster, one.appender, files, applied.extend) for _ in range(2)]
    stopped = threading.Event()
    stopped.set()
    for controller in controllers:
        controller.run(stopped)
    send(one, "rival")
    reader = LogReader(one.cluster, TABLE_OPS, {})
    records = wait_until(lambda: reader.poll(500, 1.0), 10, "the op to arrive")
    reader.close()
    ours = records[-1:]
    controllers[0].apply(ours)
    with pytest.raises(Exception, match=r"UNIQUE|second_reader|Another process"):
        controllers[1].apply(ours)
    assert len(applied) == 1


def send(platform: Platform, tenant: str) -> None:
    op = ops.Op(new_id("op"), ops.DEFINE_TENANT, tenant, tenant, {"agreement": {}})
    platform.appender.append_now(TABLE_OPS, tenant.encode(), pack(op.to_dict()), 0)


def test_what_the_controller_refuses_is_told_in_words(platform: Callable[..., Platform]) -> None:
    one = platform("refusing")
    declare(one, "strict")
    with pytest.raises(Missing, match="nowhere"):
        asyncio.run(one.applied(ops.BEGIN_IMPORT, "strict", "nowhere", {}, new_id("imp")))
    changed = {**NOTES, "primary_key": []}
    with pytest.raises(Clash, match="primary key"):
        asyncio.run(one.applied(ops.DEFINE_TABLE, "strict", "notes", {"declaration": parse_table(changed).to_dict()}))


def test_topics_and_partitions_do_not_depend_on_tenants(platform: Callable[..., Platform], broker: Broker) -> None:
    one = platform("many")
    topics = Topics(one.cluster)
    before = {name: topics.partitions(name) for name in (TABLE_OPS, RAW_INPUT, EVENTS)}
    for number in range(20):
        declare(one, f"tenant-{number}")
    assert {name: topics.partitions(name) for name in before} == before
