"""Every sink with its real server. A new sink is one line in TARGETS (how its target is made) and a reader in
`tests/support/reading_back.py`."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest

from millrace.embed.core_store import ROLE, CoreStore
from millrace.model.sinks import SinkTarget
from millrace.sink.connector import Connector
from tests.support import file_sinks, remote_delta, row_receiver
from tests.support.cassandra import core_store as running_core_store
from tests.support.file_sinks import bucket_target, folder_target, google_target, hdfs_target
from tests.support.google_emulators import bigquery_emulator, bigquery_target, storage_emulator
from tests.support.hdfs import HdfsCluster, hdfs
from tests.support.mariadb import mariadb
from tests.support.moto_server import S3, s3_server
from tests.support.sink_context import open_target

PASSWORD = "env:MILLRACE_SECRET_TEST_CASSANDRA"


def postgres_target(request: pytest.FixtureRequest) -> SinkTarget:
    at = urlsplit(request.getfixturevalue("postgres_dsn"))
    settings: dict[str, Any] = {"host": at.hostname, "port": at.port, "database": at.path[1:], "user": at.username}
    return SinkTarget("warehouse", "postgres", True, settings)


def cassandra_target(request: pytest.FixtureRequest) -> SinkTarget:
    settings: dict[str, Any] = {
        "hosts": ["127.0.0.1"],
        "port": request.getfixturevalue("core_store").port,
        "user": ROLE,
        "password": PASSWORD,
        "consistency": "ONE",
    }
    return SinkTarget("wide", "cassandra", True, settings)


def mariadb_target(request: pytest.FixtureRequest) -> SinkTarget:
    port = request.getfixturevalue("mariadb_port")
    settings: dict[str, Any] = {"host": "127.0.0.1", "port": port, "database": "lake", "user": "millrace"}
    return SinkTarget("mart", "jdbc", True, settings)


def kafka_target(request: pytest.FixtureRequest) -> SinkTarget:
    host, _, port = request.getfixturevalue("kafka").bootstrap_servers.partition(":")
    return SinkTarget("feed", "kafka", True, {"hosts": [host], "port": int(port), "partitions": 2})


def webhook_target(request: pytest.FixtureRequest) -> SinkTarget:
    receiver = request.getfixturevalue("rows_received")
    settings = {"url": receiver.url, "read_url": receiver.read_url, "secret": row_receiver.REFERENCE}
    return SinkTarget("listener", "webhook", True, settings)


TARGETS: dict[str, Callable[[pytest.FixtureRequest], SinkTarget]] = {
    "files": folder_target,
    "files-s3": partial(bucket_target, format="jsonl", layout="time"),
    "files-gcs": partial(google_target, format="csv"),
    "files-hdfs": partial(hdfs_target, format="avro"),
    "bigquery": bigquery_target,
    "delta-s3": remote_delta.bucket_target,
    "delta-hdfs": remote_delta.hdfs_target,
    "postgres": postgres_target,
    "cassandra": cassandra_target,
    "mariadb": mariadb_target,
    "kafka": kafka_target,
    "webhook": webhook_target,
}


@pytest.fixture(scope="session")
def core_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoreStore]:
    """The Cassandra of all tests of sinks, as the platform runs it."""
    with running_core_store(tmp_path_factory.mktemp("cassandra")) as store:
        os.environ[PASSWORD.removeprefix("env:")] = store.password
        yield store


@pytest.fixture(scope="session")
def rows_received() -> Iterator[row_receiver.RowReceiver]:
    with row_receiver.row_receiver() as receiver:
        yield receiver


@pytest.fixture(scope="session")
def mariadb_port() -> Iterator[int]:
    with mariadb() as port:
        yield port


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def bigquery_url() -> Iterator[str]:
    with bigquery_emulator() as url:
        yield url


@pytest.fixture(scope="session")
def storage_url() -> Iterator[str]:
    with storage_emulator() as url:
        yield url


@pytest.fixture(scope="session")
def mini_hdfs() -> Iterator[HdfsCluster]:
    with hdfs() as cluster:
        yield cluster


def away(target: SinkTarget) -> SinkTarget:
    """The same target where nobody answers."""
    if target.kind == "files":
        return file_sinks.away(target)
    if target.kind == "bigquery":
        return replace(target, settings={**target.settings, "endpoint": "http://127.0.0.1:1"})
    if target.kind == "webhook":
        return replace(target, settings={**target.settings, "url": "http://127.0.0.1:1/rows"})
    if target.kind == "delta-remote":
        return remote_delta.away(target)
    return replace(target, settings={**target.settings, "port": 1})


# Their servers take long to start: `make test-all`, `make bigquery` and `make hdfs` run them.
HEAVY = ("files-gcs", "files-hdfs", "delta-hdfs", "bigquery")
PATIENT = (pytest.mark.slow, pytest.mark.timeout(600))


@pytest.fixture(params=[pytest.param(name, marks=PATIENT if name in HEAVY else ()) for name in TARGETS])
def target(request: pytest.FixtureRequest) -> SinkTarget:
    return TARGETS[request.param](request)


@pytest.fixture
def sink(target: SinkTarget) -> Iterator[Connector]:
    opened = open_target(target)
    yield opened
    opened.close()
