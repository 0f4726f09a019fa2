"""The table log on a real broker: nothing is evaluated before it went through Kafka; a replay gives the same state."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Consumer, Message
from pydantic import SecretStr
from sqlalchemy import select

from millrace.api.documents.imports import import_document
from millrace.api.op_keys import open_op_keys
from millrace.api.server import Server
from millrace.control.controller import Controller
from millrace.control.genuine import GenuineOps
from millrace.declare.table import parse_table
from millrace.embed.accounts import ADMIN
from millrace.embed.broker import Broker
from millrace.exchange.definitions import DefinitionStore
from millrace.exchange.home import Home
from millrace.exchange.op_keys import OpKeyFiles
from millrace.exchange.stops import StopList
from millrace.model.errors import Clash, Corrupt, Missing, Unavailable
from millrace.model.imports import Counts
from millrace.model.names import new_id
from millrace.model.ops import Applied
from millrace.model.ops.imports import BeginImport, CancelImport, EndImport, SettleImport
from millrace.model.ops.rows import Append, RowsAppended
from millrace.model.ops.spans import BeginSpan
from millrace.model.ops.tables import DefineTable, TableDefined, TruncateTable
from millrace.model.ops.tenants import DefineTenant
from millrace.settings import Settings
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from millrace.wire.access import Account
from millrace.wire.client import Appender, LogReader, Record, Topics
from millrace.wire.envelope import pack, unpack_stamp
from millrace.wire.offsets import end_offsets
from millrace.wire.topics import EVENTS, RAW_INPUT, TABLE_OPS
from tests.support.broker import cluster_as, running_broker
from tests.support.waiting import wait_until

NOTES = {
    "schema": {"type": "record", "name": "notes", "fields": [{"name": "id", "type": "long"}]},
    "primary_key": ["id"],
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.fixture(scope="module")
def op_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("op-keys")


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest) -> Callable[[str], str | None]:
    """Where the control store of a home is: in the home, or in a database of its own."""
    if request.param == "sqlite":
        return lambda home: None
    dsn: str = request.getfixturevalue("postgres_dsn")

    def in_postgres(home: str) -> str:
        name = f"{home}_{uuid4().hex}"
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f'create database "{name}"')
        return dsn.rpartition("/")[0].replace("postgresql://", "postgresql+psycopg://") + f"/{name}"

    return in_postgres


@pytest.fixture
def platform(
    broker: Broker, op_keys: Path, tmp_path: Path, store_url: Callable[[str], str | None]
) -> Iterator[Callable[..., Server]]:
    made: list[Server] = []
    urls: dict[str, str | None] = {}

    def make(home: str, *, controller: bool = True) -> Server:
        url = urls.setdefault(home, store_url(home))
        # They share the log, and so the keys of its ops.
        keys = Home(tmp_path / home).op_keys
        if not keys.exists():
            keys.parent.mkdir()
            keys.symlink_to(op_keys)
        settings = Settings(home=tmp_path / home, store_url=None if url is None else SecretStr(url))
        one = Server(settings, cluster_as(broker, Account.SERVER))
        one.start(controller=controller)
        made.append(one)
        return one

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def tenant() -> str:
    """Tests share the log, so each has its own."""
    return f"t{uuid4().hex[:12]}"


def declare(platform: Server, tenant: str, **policies: Any) -> str:
    """The import that carries the definition to the sinks; none if the log says that it is so already."""

    async def both() -> TableDefined:
        await platform.op_log.applied(DefineTenant(tenant, agreement={"client": tenant}))
        declaration = parse_table({**NOTES, **policies}).to_dict()
        return await platform.op_log.applied(DefineTable(tenant, "notes", declaration=declaration))

    return asyncio.run(both()).import_id or ""


def settle(platform: Server, tenant: str, import_id: str) -> None:
    """As the accountant would, were there a data plane."""
    counts = Counts(chunks=1, read=1, accepted=1)
    body = {"counts": counts, "durable": {"delta": 1}}
    asyncio.run(platform.op_log.applied(SettleImport(tenant, import_id, **body)))


def begin(platform: Server, tenant: str, **body: Any) -> str:
    applied = asyncio.run(platform.op_log.applied(BeginImport(tenant, "notes", **body, id=new_id("imp"))))
    return str(applied.import_id)


def rows(store: ControlStore, table: Any, *columns: str) -> list[tuple[Any, ...]]:
    with store.read() as connection:
        return [
            tuple(row)
            for row in connection.execute(select(*(table.c[name] for name in columns)).order_by(table.c[columns[0]]))
        ]


def append(platform: Server, tenant: str, first: int, last: int) -> RowsAppended:
    body = {
        "rows": last - first + 1,
        "plain_bytes": 4,
        "checksum": 7,
        "payload": "cm93cw==",
        "senders": {"s": (first, last)},
    }
    return asyncio.run(platform.op_log.applied(Append(tenant, "notes", **body, id=new_id("imp"))))


COMPARED = {
    t.tables: ("tenant", "name", "last_version", "floor", "open_imports"),
    t.revisions: ("tenant", "table_name", "revision", "fingerprint"),
    t.spans: ("tenant", "name", "state", "open_members", "imports", "error"),
    t.streams: ("tenant", "table_name", "stream", "seq"),
}


def test_without_a_controller_a_definition_and_an_import_stay_requested(
    platform: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, tenant: str
) -> None:
    monkeypatch.setattr("millrace.api.op_log.ANSWER_SECONDS", 0.3)
    waiting = platform("waiting", controller=False)
    before = end_offsets(waiting.cluster, TABLE_OPS)
    body = {"declaration": parse_table(NOTES).to_dict()}
    op_id = asyncio.run(waiting.op_log.submit(DefineTable(tenant, "notes", **body)))
    assert isinstance(op_id, str), "nobody can have answered"
    import_id = asyncio.run(waiting.op_log.submit(BeginImport(tenant, "notes", id=new_id("imp"))))
    assert isinstance(import_id, str)
    after = end_offsets(waiting.cluster, TABLE_OPS)
    assert sum(end for _, end in after.values()) == sum(end for _, end in before.values()) + 2
    with waiting.store.read() as connection:
        assert import_document(connection, import_id)["state"] == "requested"
        assert connection.execute(select(t.requests.c.applied).where(t.requests.c.id == op_id)).scalar() is False


def test_the_same_log_gives_the_same_state_versions_and_events(platform: Callable[..., Server], tenant: str) -> None:
    first = platform("first")
    declare(first, tenant)
    asyncio.run(first.op_log.applied(BeginSpan(tenant, "night")))
    imports = [begin(first, tenant, idempotency_key=f"k{n % 3}", span="night") for n in range(6)]
    assert len(set(imports)) == 3
    append(first, tenant, 1, 2)
    asyncio.run(first.op_log.applied(CancelImport(tenant, imports[0])))
    asyncio.run(first.op_log.applied(TruncateTable(tenant, "notes")))
    settle(first, tenant, imports[0])
    wait_until(lambda: not rows(first.store, t.closings, "import_id"), 30, "the markers to be sent")
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
    for table, columns in COMPARED.items():
        assert rows(second.store, table, *columns) == rows(first.store, table, *columns)


def test_a_second_controller_on_the_same_store_cannot_apply_an_op_again(
    platform: Callable[..., Server], tmp_path: Path, tenant: str
) -> None:
    one = platform("alone", controller=False)
    applied: list[Applied] = []
    home = Home(tmp_path / "alone")
    shared = DefinitionStore(home), StopList(home)
    trust = open_op_keys(one.exchange.op_keys, one.cluster, one.topics)
    controllers = [
        Controller(one.store, one.cluster, one.appender, *shared, GenuineOps(trust), applied.extend) for _ in range(2)
    ]
    stopped = threading.Event()
    stopped.set()
    for controller in controllers:
        controller.run(stopped)
    send(one, tenant)
    reader = LogReader(one.cluster, TABLE_OPS, {})
    records = wait_until(lambda: reader.poll(500, 1.0), 30, "the op to arrive")
    reader.close()
    ours = records[-1:]
    controllers[0].apply(ours)
    with pytest.raises(Exception, match=r"UNIQUE|duplicate key|second_reader|Another process"):
        controllers[1].apply(ours)
    assert len(applied) == 1


def send(platform: Server, tenant: str) -> None:
    op = DefineTenant(tenant, agreement={}, id=new_id("op"))
    platform.op_signer.append(TABLE_OPS, tenant.encode(), pack(op.to_dict()), 0).result(30)


def test_a_record_that_somebody_else_wrote_is_passed_over_and_reported(
    platform: Callable[..., Server], broker: Broker, tenant: str
) -> None:
    """With every right at the broker and none of the keys: a tenant who runs a command, and a copy of a genuine op."""
    one = platform("forged")
    declare(one, tenant)
    agreed = asyncio.run(one.op_log.applied(DefineTenant(tenant, agreement={"client": "new"})))
    (first, *_) = [record for record in whole_log(one) if f'"{tenant}"'.encode() in record.value]
    stranger = Appender(cluster_as(broker, ADMIN))
    forged = DefineTenant(f"{tenant}-x", agreement={"app": {"command": ["id"]}}, id=new_id("op"))
    stranger.append(TABLE_OPS, b"", pack(forged.to_dict()), first.partition).result(30)
    copy = stranger.append(TABLE_OPS, b"", first.value, first.partition).result(30)
    stranger.close()
    again = asyncio.run(one.op_log.applied(DefineTenant(tenant, agreement={"client": "new"})))
    assert (again.revision, again.changed) == (agreed.revision, False), "the copy would have brought back the first one"
    place = f"{TABLE_OPS}/{copy.partition}/{copy.offset}: it is a copy of an earlier record"
    wait_until(lambda: place in one.health.parts()["ops"], 30, "the copy to be reported")
    # Tests share the log: this store has passed over what others forged, too.
    assert int(one.health.parts()["ops"].split()[0]) >= 2
    assert f"{tenant}-x" not in {row[0] for row in rows(one.store, t.tenants, "name")}


def whole_log(platform: Server) -> list[Record]:
    ends = end_offsets(platform.cluster, TABLE_OPS)
    reader, found = LogReader(platform.cluster, TABLE_OPS, {}), list[Record]()

    def is_read() -> bool:
        found.extend(reader.poll(500, 1.0))
        return len(found) >= sum(end - first for first, end in ends.values())

    wait_until(is_read, 30, "the log to be read")
    reader.close()
    return found


def test_a_lost_key_is_told_and_can_be_replaced(
    broker: Broker, op_keys: Path, platform: Callable[..., Server], tmp_path: Path, tenant: str
) -> None:
    declare(platform("keyed"), tenant)
    files = OpKeyFiles(Home(tmp_path / "lost"))
    cluster = cluster_as(broker, Account.SERVER)
    with pytest.raises(Corrupt, match="there is no key") as told:
        open_op_keys(files, cluster, Topics(cluster))
    assert (told.value.code, files.read()) == ("op_key_lost", [])
    assert "Restore" in told.value.remedy
    accept = Path(files.folder) / "accept-log"
    accept.parent.mkdir(parents=True)
    accept.touch()
    trust = open_op_keys(files, cluster, Topics(cluster))
    assert not accept.exists()
    genuine = GenuineOps(trust)
    assert not genuine.sift(whole_log(platform("keyed"))).forged
    (Path(files.folder) / "rotate").touch()
    rotated = open_op_keys(files, cluster, Topics(cluster))
    assert [key.number for key in rotated.keys] == [1, 2]
    assert rotated.keys[:1] == trust.keys
    assert open_op_keys(files, cluster, Topics(cluster)).keys == rotated.keys


def test_what_the_controller_refuses_is_told_in_words(platform: Callable[..., Server], tenant: str) -> None:
    one = platform("refusing")
    declare(one, tenant)
    with pytest.raises(Missing, match="nowhere"):
        asyncio.run(one.op_log.applied(BeginImport(tenant, "nowhere", id=new_id("imp"))))
    changed = {**NOTES, "primary_key": []}
    with pytest.raises(Clash, match="primary key"):
        asyncio.run(one.op_log.applied(DefineTable(tenant, "notes", declaration=parse_table(changed).to_dict())))


def test_a_line_outlives_the_process_that_made_it(
    platform: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, tenant: str
) -> None:
    monkeypatch.setattr("millrace.api.op_log.ANSWER_SECONDS", 0.3)
    one = platform("line")
    settle(one, tenant, declare(one, tenant, concurrency="exclusive"))
    first = begin(one, tenant)
    waiting = [new_id("imp") for _ in range(2)]
    for import_id in waiting:
        assert asyncio.run(one.op_log.submit(BeginImport(tenant, "notes", id=import_id))) == import_id
    one.stop()
    monkeypatch.setattr("millrace.api.op_log.ANSWER_SECONDS", 10.0)
    again = platform("line")
    assert [state for _, state in states(again, first, *waiting)] == ["admitted"]
    settle(again, tenant, first)
    assert states(again, *waiting) == [(waiting[0], "admitted")]
    settle(again, tenant, waiting[0])
    assert states(again, waiting[1]) == [(waiting[1], "admitted")]


def states(platform: Server, *import_ids: str) -> list[tuple[str, str]]:
    return [row for row in rows(platform.store, t.imports, "id", "state") if row[0] in import_ids]


def test_streamed_rows_come_out_of_the_outbox_once(platform: Callable[..., Server], tenant: str) -> None:
    one = platform("streaming")
    declare(one, tenant)
    answer = append(one, tenant, 1, 2)
    with pytest.raises(Clash, match="row 2"):
        append(one, tenant, 1, 2)
    wait_until(lambda: not rows(one.store, t.outbox, "import_id"), 30, "the chunks to be sent")
    reader = LogReader(one.cluster, RAW_INPUT, {})
    ours: list[tuple[Any, bytes]] = []

    def arrived() -> bool:
        sent = [unpack_stamp(record.value) for record in reader.poll(500, 1.0)]
        ours.extend((head, bytes(rest)) for head, rest in sent if head and head.import_id == answer.import_id)
        return bool(ours)

    wait_until(arrived, 30, "the chunk to arrive")
    reader.close()
    assert [(header.version, header.rows, payload) for header, payload in ours] == [(answer.version, 2, b"rows")]


def test_trouble_of_one_who_hears_of_ops_is_not_the_others(platform: Callable[..., Server], tenant: str) -> None:
    one = platform("hearing")
    heard: list[Applied] = []

    def stumble(_: list[Applied]) -> None:
        raise RuntimeError("cannot hear")

    one.op_log.listen(stumble)
    one.op_log.listen(heard.extend)
    settle(one, tenant, declare(one, tenant))
    wait_until(lambda: len(heard) >= 3, 30, "the ops to be told")


def test_an_end_that_was_asked_for_in_vain_is_asked_for_again(
    platform: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, tenant: str
) -> None:
    monkeypatch.setattr("millrace.account.accountant.TRIM_SECONDS", 0.2)
    one = platform("lost")
    settle(one, tenant, declare(one, tenant))
    really, lost = one.op_appender.append, []

    def lossy(topic: str, key: bytes, value: bytes, partition: int) -> Any:
        if b'"settle_import"' not in value or len(lost) == 2:
            return really(topic, key, value, partition)
        lost.append(value)
        if len(lost) == 1:
            raise Unavailable("Kafka: the queue is gone.", remedy="")
        asked: Future[Any] = Future()
        asked.set_exception(Unavailable("Kafka did not take the record.", remedy=""))
        return asked

    monkeypatch.setattr(one.op_appender, "append", lossy)
    ended: list[str] = []
    trim = one.accountant._topics.trim

    def end_meanwhile(before: Mapping[tuple[str, int], int]) -> None:
        """The import begins and loses its end after the trim has listed the unsettled imports."""
        if not ended:
            ended.append(begin(one, tenant))
            end = {"chunks": 0, "rows": 0, "bytes": 0, "written": None}
            asyncio.run(one.op_log.applied(EndImport(tenant, ended[0], **end)))
            wait_until(lambda: lost, 30, "the end to be asked for")
        trim(before)

    monkeypatch.setattr(one.accountant._topics, "trim", end_meanwhile)
    wait_until(lambda: ended and states(one, ended[0]) == [(ended[0], "completed")], 30, "the import to end")
    assert len(lost) == 2


def test_topics_and_partitions_do_not_depend_on_tenants(platform: Callable[..., Server], broker: Broker) -> None:
    one = platform("many")
    topics = Topics(one.cluster)
    before = {name: topics.partitions(name) for name in (TABLE_OPS, RAW_INPUT, EVENTS)}
    for number in range(20):
        declare(one, f"tenant-{number}")
    assert {name: topics.partitions(name) for name in before} == before


def test_a_plain_client_of_kafka_reads_events_as_cloud_events(
    platform: Callable[..., Server], broker: Broker, tenant: str
) -> None:
    """By the Kafka binding of CloudEvents, with the account that docs/events.md names."""
    declare(platform("telling"), tenant)
    login = cluster_as(broker, Account.OPERATOR).client_config()
    consumer = Consumer({**login, "group.id": f"mine-{tenant}", "auto.offset.reset": "earliest"})
    consumer.subscribe(["millrace.events"])
    found: list[Message] = []

    def has_both() -> bool:
        # The broker is shared: events of other tests come first.
        messages = consumer.consume(500, 0.5)
        found.extend(each for each in messages if each.error() is None and each.key() == tenant.encode())
        return len(found) >= 2

    try:
        wait_until(has_both, 30, "the events of the tenant")
    finally:
        consumer.close()
    events = [json.loads(message.value() or b"") for message in found]
    assert [event["type"] for event in events[:2]] == ["millrace.tenant.defined", "millrace.table.created"]
    for message, event in zip(found, events, strict=True):
        headers = {name: value.decode() for name, value in message.headers() or [] if isinstance(value, bytes)}
        assert headers.pop("content-type") == "application/cloudevents+json; charset=UTF-8"
        assert headers == {
            f"ce_{name}": event[name] for name in ("specversion", "id", "source", "type", "subject", "time")
        }
        assert event["specversion"] == "1.0"
        assert datetime.fromisoformat(event["time"]).tzinfo is not None
