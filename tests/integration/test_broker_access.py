"""The embedded broker as a stranger on this machine, and as each process of the platform, meets it."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from millrace.embed.accounts import ADMIN, login, set_acls
from millrace.embed.broker import Broker
from millrace.wire.access import Account, broker_accounts
from millrace.wire.client import Cluster, Topics
from millrace.wire.topics import (
    EVENTS,
    IMPORT_ERROR,
    PROGRESS,
    RAW_INPUT,
    TABLE_OPS,
    VALIDATED_INPUT,
    catalogue,
)
from tests.support.broker import cluster_as, open_broker, passwords_of, running_broker
from tests.support.processes import end, leashed
from tests.support.waiting import wait_until

ALL = (TABLE_OPS, RAW_INPUT, VALIDATED_INPUT, IMPORT_ERROR, PROGRESS, EVENTS)
SECONDS = 20.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("kafka")) as started:
        make_topics(started)
        yield started


def make_topics(broker: Broker) -> None:
    Topics(cluster_as(broker, Account.SERVER)).ensure(catalogue(2), 1)


def writes(cluster: Cluster, topic: str) -> str:
    """`ok`, or the name of the error that the producer gets."""
    said: list[str] = []
    producer = Producer({**cluster.client_config(), "message.timeout.ms": int(SECONDS * 1000), "log_level": 0})
    producer.produce(
        topic, b"{}", partition=0, on_delivery=lambda error, _: said.append(error.name() if error else "ok")
    )
    producer.flush(2 * SECONDS)
    return said[0]


def reads(cluster: Cluster, topic: str, group: str = "millrace-test") -> str:
    """`ok` if a record or the end of the topic is reached, or the name of the error that the consumer gets."""
    more = {"group.id": group, "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer({**cluster.client_config(), **more})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        # A consumer waits for ever for a topic that it may not know.
        if (hidden := consumer.list_topics(topic, timeout=SECONDS).topics[topic].error) is not None:
            return str(hidden.name())
        (message,) = wait_until(lambda: consumer.consume(1, 1.0), SECONDS, "an answer")
        error = message.error()
        return "ok" if error is None or error.code() == KafkaError._PARTITION_EOF else str(error.name())
    finally:
        consumer.close()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": "x",
        },
        login(ADMIN, "a guess"),
        login("nobody", "x"),
    ],
    ids=["no account", "another mechanism", "a wrong password", "an unknown account"],
)
def test_a_stranger_is_told_nothing(broker: Broker, options: dict[str, str]) -> None:
    asking = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, **options})
    with pytest.raises(KafkaException):
        asking.list_topics(timeout=3)


def answers_anybody(port: int) -> bool:
    """Whether the listener answers a request that came without a login: which controllers there are."""
    # DescribeCluster, version 1: request 1 of a client without a name; no tags, no operations, controllers, no tags.
    request = struct.pack(">hhihbbbb", 60, 1, 1, -1, 0, 0, 2, 0)
    with socket.create_connection(("127.0.0.1", port), SECONDS) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        try:
            return bool(connection.recv(4))
        except ConnectionResetError:
            return False


def test_no_listener_answers_without_a_login(broker: Broker) -> None:
    """A listener without accounts would: see the home of an older version below."""
    assert [answers_anybody(port) for port in _ports(broker.home).values()] == [False, False]


def test_each_process_writes_its_own_topics_and_no_others(broker: Broker) -> None:
    refused = "TOPIC_AUTHORIZATION_FAILED"
    own = {
        Account.SERVER: {TABLE_OPS, RAW_INPUT, EVENTS},
        Account.DATA_PLANE: {RAW_INPUT, VALIDATED_INPUT, IMPORT_ERROR, PROGRESS},
        Account.OPERATOR: set[str](),
    }
    found = {account: {topic: writes(cluster_as(broker, account), topic) for topic in ALL} for account in own}
    assert found == {
        account: {topic: "ok" if topic in topics else refused for topic in ALL} for account, topics in own.items()
    }


def test_the_data_plane_cannot_read_ops_and_the_operator_reads_everything(broker: Broker) -> None:
    data_plane, operator = (cluster_as(broker, account) for account in (Account.DATA_PLANE, Account.OPERATOR))
    assert reads(data_plane, RAW_INPUT) == "ok"
    assert reads(data_plane, RAW_INPUT, "spark-kafka-source-1") == "ok"
    assert reads(data_plane, TABLE_OPS) == "TOPIC_AUTHORIZATION_FAILED"
    assert {reads(operator, topic, "any group") for topic in ALL} == {"ok"}


def test_only_the_administrator_sees_accounts_and_foreign_topics(broker: Broker) -> None:
    for account in Account:
        admin = AdminClient(cluster_as(broker, account).client_config())
        with pytest.raises(KafkaException, match="AUTHORIZATION"):
            admin.create_topics([NewTopic("foreign", 1, 1)])["foreign"].result(SECONDS)
        with pytest.raises(KafkaException, match="AUTHORIZATION"):
            set_acls(admin, broker_accounts(passwords_of(broker.home)))


def test_passwords_are_nobody_elses_to_read(broker: Broker) -> None:
    folder = passwords_of(broker.home)
    secret = [file.read_text() for file in folder.iterdir()]
    assert sorted(file.name for file in folder.iterdir()) == sorted([ADMIN, *Account])
    assert len(set(secret)) == 4
    assert min(map(len, secret)) == 64
    assert folder.stat().st_mode & 0o077 == 0
    assert broker.home.stat().st_mode & 0o007 == 0
    holding = [
        file for file in broker.home.iterdir() if file.is_file() and any(s in file.read_text("latin-1") for s in secret)
    ]
    assert [file.name for file in holding] == ["server.properties"]
    assert holding[0].stat().st_mode & 0o077 == 0
    assert broker.child.pid is not None
    shown = psutil.Process(broker.child.pid)
    for process in (shown, *shown.children(recursive=True)):
        assert not any(s in " ".join(process.cmdline()) for s in secret)


def test_a_home_of_an_older_version_keeps_its_records_and_gets_accounts(tmp_path: Path) -> None:
    home = tmp_path / "kafka"
    with open_broker(home) as old:
        anybody = Cluster(old.bootstrap_servers)
        Topics(anybody).ensure(catalogue(2), 1)
        assert writes(anybody, RAW_INPUT) == "ok"
        assert [answers_anybody(port) for port in _ports(home).values()] == [True, True]
    with running_broker(home) as upgraded:
        assert upgraded.bootstrap_servers == old.bootstrap_servers
        with pytest.raises(KafkaException):
            AdminClient({**anybody.client_config(), "log_level": 0}).list_topics(timeout=3)
        assert reads(cluster_as(upgraded, Account.DATA_PLANE), RAW_INPUT) == "ok"
        assert writes(cluster_as(upgraded, Account.SERVER), TABLE_OPS) == "ok"
        assert writes(cluster_as(upgraded, Account.DATA_PLANE), TABLE_OPS) == "TOPIC_AUTHORIZATION_FAILED"
        before = cluster_as(upgraded, Account.SERVER)
    # A password that is deleted is made anew, and the old one is worth nothing.
    (passwords_of(home) / Account.SERVER).unlink()
    with running_broker(home) as again:
        assert cluster_as(again, Account.SERVER).options != before.options
        assert writes(cluster_as(again, Account.SERVER), TABLE_OPS) == "ok"
        with pytest.raises(KafkaException):
            AdminClient({**before.client_config(), "log_level": 0}).list_topics(timeout=3)


PREPARE = """
import sys
from pathlib import Path
from tests.support.broker import prepared
prepared(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("is_old", [False, True], ids=["a new home", "a home without accounts"])
def test_a_kill_at_any_moment_of_the_first_start_does_not_matter(tmp_path: Path, is_old: bool) -> None:
    home = tmp_path / "kafka"
    if is_old:
        with open_broker(home):
            pass
        passwords = passwords_of(home)
        for file in passwords.iterdir():
            file.unlink()
    # Each kill comes a step later: at a password, while the tool formats or the broker is set up, right behind it.
    moments = (
        lambda: any(passwords_of(home).glob("[a-z]*")),
        lambda: _works(home),
        (home / "accounts").exists,
    )
    for moment in moments:
        process = subprocess.Popen(leashed([sys.executable, "-c", PREPARE, str(home)]), start_new_session=True)
        try:
            wait_until(lambda: moment() or process.poll() is not None, 60, "the moment to kill it")  # noqa: B023
        finally:
            with_children = [process.pid, *(one.pid for one in _children(process.pid))]
            for pid in with_children:
                _kill(pid)
            end(process, 0)
    with running_broker(home) as broker:
        make_topics(broker)
        assert writes(cluster_as(broker, Account.SERVER), TABLE_OPS) == "ok"


def _works(home: Path) -> bool:
    """The tool or the broker runs: one of them has a process on this home."""
    marks = ("kafka.tools.StorageTool", "kafka.Kafka")
    lines = [" ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"])]
    return any(str(home) in line and any(mark in line for mark in marks) for line in lines)


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _ports(home: Path) -> dict[str, int]:
    return dict(json.loads((home / "ports.json").read_text()))
