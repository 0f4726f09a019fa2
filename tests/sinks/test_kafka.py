"""What only the Kafka sink must keep: no record follows a newer one of its key, whoever writes, whatever was forgotten."""

import json
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from millrace.embed.broker import Broker
from millrace.model.errors import Invalid, Unavailable
from millrace.model.sinks import Fault, SinkFailed, SinkTarget
from millrace.model.table import Definition
from millrace.outbound.addresses import Judged
from millrace.sink.connector import Rows, Work
from millrace.sink.kafka import journal as kafka_journal
from millrace.sink.kafka.sink import KafkaSink
from millrace.wire import external_kafka as outward
from millrace.wire.external_kafka import NotTaken, OutwardCluster, not_taken
from tests.sinks import test_contract as contract
from tests.sinks.test_contract import ID, TEXT, definition, known, rows, stored
from tests.support.sink_context import open_target

Sinks = Callable[..., KafkaSink]


@pytest.fixture
def sinks(kafka: Broker) -> Iterator[Sinks]:
    """As many as are asked for, each as another worker would have it."""
    made: list[KafkaSink] = []

    def make(**settings: Any) -> KafkaSink:
        host, _, port = kafka.bootstrap_servers.partition(":")
        target = SinkTarget("feed", "kafka", True, {"hosts": [host], "port": int(port), "partitions": 2, **settings})
        sink = open_target(target, str)
        assert isinstance(sink, KafkaSink)
        made.append(sink)
        return made[-1]

    yield make
    for sink in made:
        sink.close()


def records(kafka: Broker, table: Definition) -> dict[bytes | None, list[tuple[int, Any]]]:
    """What a reader of committed records gets, by key, in order: versions and whether it is a row."""
    found: dict[bytes | None, list[tuple[int, Any]]] = defaultdict(list)
    cluster = OutwardCluster({"bootstrap.servers": kafka.bootstrap_servers})
    for record in cluster.read(f"{table.tenant}.{table.table.name}"):
        value = None if record.value is None else json.loads(record.value)
        version = int(record.headers["_version"]) if value is None else value["_version"]
        found[record.key].append((version, value))
    return found


def only_rising(found: dict[bytes | None, list[tuple[int, Any]]]) -> bool:
    return all([version for version, _ in each] == sorted({version for version, _ in each}) for each in found.values())


def test_two_workers_take_turns_and_neither_brings_back_what_is_old(sinks: Sinks, kafka: Broker) -> None:
    table = definition([ID, TEXT])
    workers = [sinks(), sinks()]
    for worker in workers:
        worker.prepare(table, known(table))
    turns = [(0, 5), (1, 3), (0, 4), (1, 9), (0, 7), (0, 8), (1, 8), (1, 10)]
    for worker, version in turns:
        workers[worker].write(Work(table, [rows(table, [(1, f"v{version}", version, False)])]))
    assert stored(workers[0], table) == {1: ("v10", 10)}
    found = records(kafka, table)
    assert only_rising(found)
    assert [version for version, _ in found[b'{"id":1}']] == [5, 9, 10]


def test_what_was_forgotten_is_looked_up(sinks: Sinks, kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_journal, "MOST_KEYS", 8)
    monkeypatch.setattr(kafka_journal, "ENTRY_ROWS", 3)
    table = definition([ID, TEXT])
    writer = sinks()
    writer.prepare(table, known(table))
    for at in range(20):
        writer.write(Work(table, [rows(table, [(at, f"row {at}", 100 + at, at == 3)])]))
    late = [(0, "late", 50, False), (3, "risen from the dead", 60, False), (99, "late, yet new", 70, False)]
    for sink in (writer, sinks()):
        sink.write(Work(table, [rows(table, late)]))
    expected = {at: (f"row {at}", 100 + at) for at in range(20) if at != 3}
    assert stored(writer, table) == {**expected, 99: ("late, yet new", 70)}
    assert only_rising(records(kafka, table))


def test_a_transaction_that_broke_off_shows_nothing_and_counts_for_nothing(sinks: Sinks) -> None:
    table = definition([ID, TEXT])
    sink = sinks()
    sink.prepare(table, known(table))

    def breaking() -> Iterator[pa.RecordBatch]:
        yield from rows(table, [(1, "torn", 9, False)]).open()
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError) as met:
        sink.write(Work(table, [Rows(("imp_1/0",), (9,), breaking)]))
    assert sink.classify(met.value) is Fault.SINK
    assert stored(sink, table) == {}
    sink.write(Work(table, [rows(table, [(1, "whole", 9, False)])]))
    assert stored(sink, table) == {1: ("whole", 9)}


def test_deletes_and_floors_are_tombstones(sinks: Sinks, kafka: Broker) -> None:
    table = definition([ID, TEXT])
    sink = sinks()
    sink.prepare(table, known(table))
    sink.write(Work(table, [rows(table, [(1, "a", 1, False), (2, "b", 2, False), (3, "c", 9, False)])]))
    sink.write(Work(table, [rows(table, [(2, None, 5, True)])]))
    sink.write(Work(table, [], floor=6))
    last = {key: each[-1] for key, each in records(kafka, table).items()}
    assert last[b'{"id":1}'] == (6, None)
    assert last[b'{"id":2}'] == (5, None)
    assert last[b'{"id":3}'][1]["text"] == "c"


def test_a_topic_is_of_one_tenant_and_of_one_table(sinks: Sinks) -> None:
    one, other = definition([ID, TEXT], tenant="kafka_a"), definition([ID, TEXT], tenant="kafka_b")
    sink = sinks(topic="notes_of_all")
    for table in (one, other):
        sink.prepare(table, known(table))
        sink.write(Work(table, [rows(table, [(1, table.tenant, 1, False)])]))
    assert [stored(sink, table) for table in (one, other)] == [{1: ("kafka_a", 1)}, {1: ("kafka_b", 1)}]
    document = {"schema": {"type": "record", "name": "more", "fields": [ID, TEXT]}, "primary_key": ["id"]}
    twin = contract.define("kafka_a", contract.parse_table(document), 1)
    with pytest.raises(SinkFailed, match="belongs to kafka_a/notes") as met:
        sink.prepare(twin, known(twin))
    assert sink.classify(met.value) is Fault.TABLE


def test_every_type_survives_in_avro(sinks: Sinks) -> None:
    contract.test_every_type_and_any_name_survives(sinks(format="avro"))


def test_avro_readers_find_their_schema_beside(sinks: Sinks) -> None:
    contract.test_a_table_takes_the_shape_of_its_newest_definition(sinks(format="avro"))


def test_a_row_too_large_is_a_row_s_fault(sinks: Sinks) -> None:
    table = definition([ID, TEXT])
    sink = sinks()
    sink.prepare(table, known(table))
    with pytest.raises(Exception) as met:
        sink.write(Work(table, [rows(table, [(1, "x" * (9 << 20), 1, False), (2, "fine", 1, False)])]))
    assert sink.classify(met.value) is Fault.ROW
    sink.write(Work(table, [rows(table, [(2, "fine", 1, False)])]))
    assert stored(sink, table) == {2: ("fine", 1)}


def test_a_cluster_on_forbidden_addresses_is_refused(sinks: Sinks) -> None:
    told = sinks()
    told._permitted = Judged()
    with pytest.raises(Invalid, match="not a public address") as met:
        told.check()
    assert told.classify(met.value) is Fault.SINK


def test_a_cluster_that_says_nothing_is_given_up(sinks: Sinks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outward, "REACH_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sink = sinks(port=silent.getsockname()[1])
        with pytest.raises(NotTaken) as met:
            sink.check()
    assert sink.classify(met.value) is Fault.SINK


def _codes() -> dict[str, int]:
    return {
        name: code for name, code in vars(KafkaError).items() if isinstance(code, int) and name.lstrip("_").isupper()
    }


def test_every_error_of_kafka_has_a_reach(sinks: Sinks) -> None:
    sink = sinks()
    found = {name: sink.classify(not_taken(KafkaException(KafkaError(code)))) for name, code in _codes().items()}
    assert len(found) > 100
    by_fault = {fault: {name for name, each in found.items() if each is fault} for fault in Fault}
    assert {"MSG_SIZE_TOO_LARGE", "INVALID_RECORD"} <= by_fault[Fault.ROW]
    assert {"TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PART", "POLICY_VIOLATION"} <= by_fault[Fault.TABLE]
    assert {
        "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_AUTHENTICATION", "_FENCED", "NOT_ENOUGH_REPLICAS",
        "SASL_AUTHENTICATION_FAILED", "KAFKA_STORAGE_ERROR", "COORDINATOR_NOT_AVAILABLE", "REQUEST_TIMED_OUT",
    } <= by_fault[Fault.SINK]  # fmt: skip
    assert len(by_fault[Fault.ROW]) < 8
    others = [Invalid("private"), Unavailable("unresolved"), OSError(), KafkaException("no code"), KeyError("a bug")]
    assert [sink.classify(error) for error in others] == [Fault.SINK] * 3 + [Fault.TABLE] * 2
