"""Brokers that run for the time of a block: the embedded one, and one of somebody else, which asks nobody for a password."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from millrace.embed import broker as broker_module
from millrace.embed.broker import Broker, prepare_broker
from millrace.embed.process import Child
from millrace.wire.access import as_account, broker_accounts
from millrace.wire.client import Cluster
from tests.support.children import wait_ready

_GUARDED = ("sasl", "authorizer.", "super.users", "listener.security.protocol.map")
_OPEN = "listener.security.protocol.map=CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT\n"


def passwords_of(home: Path) -> Path:
    return home / "passwords"


def cluster_as(broker: Broker, account: str) -> Cluster:
    """The broker as one of its accounts reaches it."""
    return as_account(Cluster(broker.bootstrap_servers), passwords_of(broker.home), account)


def prepared(home: Path, port: int = 0) -> Broker:
    return prepare_broker(home, broker_accounts(passwords_of(home)), port)


@contextmanager
def running_broker(home: Path, port: int = 0) -> Iterator[Broker]:
    with running(prepared(home, port)) as broker:
        yield broker


@contextmanager
def open_broker(home: Path) -> Iterator[Broker]:
    """As a version without accounts made it and ran it; or a cluster that is not the platform's."""
    with patch.object(broker_module, "scram_arguments", lambda _: []):
        broker = prepared(home)
    (home / "accounts").unlink()
    properties = home / "server.properties"
    kept = [line for line in properties.read_text().splitlines(True) if not any(mark in line for mark in _GUARDED)]
    properties.write_text("".join(kept) + _OPEN)
    launch = replace(broker.child.launch, is_ready=lambda: _answers(broker.bootstrap_servers))
    with running(replace(broker, child=Child(launch))) as started:
        yield started


@contextmanager
def running(broker: Broker) -> Iterator[Broker]:
    broker.child.start()
    try:
        wait_ready(broker.child, 60)
        yield broker
    finally:
        broker.child.stop()


def _answers(address: str) -> bool:
    try:
        return bool(AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=2).brokers)
    except KafkaException:
        return False
