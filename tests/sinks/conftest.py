"""Every sink with its real server. A new sink is one line in TARGETS: how its target is made."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from millrace.model.sinks import SinkTarget
from millrace.sink.foreign import ForeignSink
from millrace.sink.registry import sink_class
from millrace.sink.addresses import allow
from tests.support.cassandra import cassandra


def postgres_target(request: pytest.FixtureRequest) -> SinkTarget:
    at = urlsplit(request.getfixturevalue("postgres_dsn"))
    settings: dict[str, Any] = {"host": at.hostname, "port": at.port, "database": at.path[1:], "user": at.username}
    return SinkTarget("warehouse", "postgres", True, settings)


def cassandra_target(request: pytest.FixtureRequest) -> SinkTarget:
    settings: dict[str, Any] = {
        "hosts": ["127.0.0.1"],
        "port": request.getfixturevalue("cassandra_port"),
        "consistency": "ONE",
    }
    return SinkTarget("wide", "cassandra", True, settings)


TARGETS: dict[str, Callable[[pytest.FixtureRequest], SinkTarget]] = {
    "postgres": postgres_target,
    "cassandra": cassandra_target,
}


@pytest.fixture(scope="session")
def cassandra_port() -> Iterator[int]:
    with cassandra() as port:
        yield port


def no_secret(reference: str) -> str:
    raise AssertionError(f"nobody asked for {reference}")


@pytest.fixture(params=list(TARGETS))
def target(request: pytest.FixtureRequest) -> SinkTarget:
    return TARGETS[request.param](request)


@pytest.fixture
def sink(target: SinkTarget) -> Iterator[ForeignSink]:
    opened = sink_class(target.kind)(target, no_secret)
    yield opened
    opened.close()
@pytest.fixture(scope="session", autouse=True)
def loopback() -> None:
    """The servers of these tests are on this machine: as an operator would allow it."""
    allow(["127.0.0.0/8", "::1/128"])


