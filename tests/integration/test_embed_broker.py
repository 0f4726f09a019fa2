"""The embedded Kafka broker as its users see it: records in, the same records out, whatever happened in between."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.embed.accounts import ADMIN
from millrace.embed.broker import Broker
from millrace.embed.ports import free_ports
from tests.support.broker import cluster_as, running_broker
from tests.support.children import wait_ready
from tests.support.waiting import wait_until

MEBIBYTE = 1024 * 1024


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


def as_admin(broker: Broker) -> dict[str, str | int | bool]:
    return cluster_as(broker, ADMIN).client_config()


def create_topic(broker: Broker) -> str:
    name = f"t-{uuid.uuid4().hex}"
    admin = AdminClient(as_admin(broker))
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(20)
    return name


def append(broker: Broker, topic: str, *values: bytes) -> None:
    producer = Producer({**as_admin(broker), "message.max.bytes": 16 * MEBIBYTE, "log_level": 0})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def read(broker: Broker, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({**as_admin(broker), "group.id": "test", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        messages = consumer.consume(count, timeout=30)
        return [message.value() or b"" for message in messages]
    finally:
        consumer.close()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    with running_broker(tmp_path / "kafka") as broker:
        yield broker


def test_records_survive_a_kill_and_an_orderly_stop_on_the_same_port(own_broker: Broker) -> None:
    topic, address = create_topic(own_broker), own_broker.bootstrap_servers
    append(own_broker, topic, b"before the kill")
    own_broker.child.kill()
    own_broker.child.start()
    wait_ready(own_broker.child, 60)
    append(own_broker, topic, b"after the kill")
    own_broker.child.stop()
    with running_broker(own_broker.home) as again:
        assert again.bootstrap_servers == address
        assert read(again, topic, 2) == [b"before the kill", b"after the kill"]


def test_a_crash_while_formatting_does_not_matter(tmp_path: Path) -> None:
    home = tmp_path / "kafka"
    (home / "data.forming").mkdir(parents=True)
    (home / "data.forming" / "meta.properties").touch()
    with running_broker(home) as broker:
        create_topic(broker)


def test_a_second_run_of_the_same_home_replaces_one_left_over(own_broker: Broker) -> None:
    topic = create_topic(own_broker)
    append(own_broker, topic, b"kept")
    with running_broker(own_broker.home) as second:
        wait_until(lambda: not own_broker.child.running, 30, "the one left over is gone")
        assert read(second, topic, 1) == [b"kept"]


def test_a_port_can_be_asked_for(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with running_broker(tmp_path, port) as broker:
        assert broker.bootstrap_servers == f"127.0.0.1:{port}"
        assert AdminClient(as_admin(broker)).list_topics(timeout=10).brokers


def test_a_record_may_be_as_large_as_the_limit_says(kafka: Broker) -> None:
    topic = create_topic(kafka)
    large = bytes(range(256)) * (12 * MEBIBYTE // 256)
    append(kafka, topic, large)
    assert read(kafka, topic, 1) == [large]


def test_topics_are_not_made_by_accident(kafka: Broker) -> None:
    name = f"t-{uuid.uuid4().hex}"
    failures: list[str] = []
    producer = Producer({**as_admin(kafka), "message.timeout.ms": 3000, "log_level": 0})
    producer.produce(name, b"x", on_delivery=lambda error, message: failures.append(error.name()))
    producer.flush(20)
    assert failures == ["_UNKNOWN_TOPIC"] or failures == ["_MSG_TIMED_OUT"]
    admin = AdminClient(as_admin(kafka))
    assert name not in admin.list_topics(timeout=10).topics
