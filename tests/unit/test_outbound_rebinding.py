"""No server and no name server leads the platform to an address that nobody permitted: every kind of sink, and webhooks.

Each kind meets a name that points elsewhere the second time, a name that only libc resolves to a forbidden address, and a
server that sends its clients to a forbidden address, as far as its protocol can."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest
from cassandra import InvalidRequest

from millrace.model.addresses import literal
from millrace.model.errors import Invalid, MillraceError
from millrace.model.sinks import CORE_STORE_KIND, DELTA_KIND, SinkTarget
from millrace.outbound import addresses, http
from millrace.outbound.addresses import parse_target
from millrace.sink.cassandra.sink import CassandraSink
from millrace.sink.connector import Connector, Work
from millrace.sink.registry import connector_class, kinds, refuse_strange, settings_class
from millrace.wire import external_kafka
from tests.sinks.test_contract import ID, TEXT, definition, rows
from tests.support.astray import (
    ALLOWED,
    FORBIDDEN,
    NAME,
    PERMITTED,
    Answering,
    a_pair,
    answers_http,
    closes,
    counting,
    table_of_bigquery,
)
from tests.support.file_sinks import service_account_key
from tests.support.sink_context import sink_context
from tests.support.small_cassandra import announces

SECRET = "env:MILLRACE_SECRET_TEST_X"
S3_KEYS = {"access_key": SECRET, "secret_key": SECRET}
REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True)
class Case:
    """`settings` of a target at a host and a port. `is_http`: its server can redirect. `server`: what its client needs to
    hear to give up soon."""

    kind: str
    settings: Callable[[str, int], dict[str, Any]]
    is_http: bool = False
    server: Answering = closes


def _url(host: str, port: int) -> str:
    return f"http://{host}:{port}"


CASES = {
    "postgres": Case("postgres", lambda host, port: {"host": host, "port": port, "database": "d", "user": "u"}),
    "cassandra": Case(
        "cassandra",
        lambda host, port: {"hosts": [host], "port": port},
        server=announces(PERMITTED, PERMITTED),
    ),
    "jdbc": Case("jdbc", lambda host, port: {"host": host, "port": port, "database": "d", "user": "u"}),
    "jdbc-tls": Case(
        "jdbc", lambda host, port: {"host": host, "port": port, "database": "d", "user": "u", "tls": "verify"}
    ),
    "kafka": Case("kafka", lambda host, port: {"hosts": [host], "port": port}),
    "kafka-tls": Case("kafka", lambda host, port: {"hosts": [host], "port": port, "tls": True}),
    "bigquery": Case(
        "bigquery", lambda host, port: {"project": "p", "endpoint": _url(host, port), "credentials": SECRET}, True
    ),
    "files-s3": Case("files", lambda host, port: {"path": "s3://b/p", "endpoint": _url(host, port), **S3_KEYS}, True),
    "files-gs": Case(
        "files", lambda host, port: {"path": "gs://b/p", "endpoint": _url(host, port), "credentials": SECRET}, True
    ),
    "files-hdfs": Case("files", lambda host, port: {"path": f"webhdfs://{host}:{port}/p"}, True),
    "delta-s3": Case(
        "delta-remote", lambda host, port: {"location": "s3://b/p", "endpoint": _url(host, port), **S3_KEYS}, True
    ),
    "delta-hdfs": Case(
        "delta-remote", lambda host, port: {"location": f"hdfs://{host}/p", "endpoint": _url(host, port)}, True
    ),
    "webhook": Case("webhook", lambda host, port: {"url": f"{_url(host, port)}/rows", "secret": SECRET}, True),
}
OVER_HTTP = [name for name, case in CASES.items() if case.is_http]


def test_every_kind_of_sink_is_tested_here() -> None:
    # Delta here and the platform's own Cassandra have no address that a tenant names.
    assert {case.kind for case in CASES.values()} | {DELTA_KIND, CORE_STORE_KIND} == set(kinds())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "ATTEMPTS", 1)
    monkeypatch.setattr(external_kafka, "REACH_SECONDS", 1.0)
    monkeypatch.delenv("MILLRACE_FILES_ROOT", raising=False)


def secret_of(case: Case, token_uri: str = "http://127.0.0.1:1/") -> Callable[[str], str]:
    if case.kind == "webhook":
        return lambda _: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    return lambda _: json.dumps({**json.loads(service_account_key()), "token_uri": token_uri})


def judged(case: Case, host: str, port: int, token_uri: str = "http://127.0.0.1:1/") -> Callable[[], Connector]:
    """A target whose declaration is accepted now. What is returned connects to it."""
    context = replace(sink_context(secret_of(case, token_uri)), allowed=ALLOWED)
    target = SinkTarget("there", case.kind, True, case.settings(host, port))
    settings = settings_class(case.kind).of(target)
    refuse_strange(target, settings, context)
    return lambda: connector_class(case.kind)(settings, context)


def check(make: Callable[[], Connector]) -> None:
    sink = make()
    try:
        sink.check()
    finally:
        sink.close()


def says(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """What our own resolver finds from now on. libc finds FORBIDDEN."""

    def resolve(host: str) -> list[str]:
        return [host if literal(host) is not None else answer]

    monkeypatch.setattr(addresses, "resolve", resolve)


def names_all(error: BaseException, *parts: str) -> None:
    for part in parts:
        assert part in str(error), f"{part} is missing in: {error}"


@pytest.mark.parametrize("name", CASES)
def test_a_name_that_points_elsewhere_the_second_time_leads_nowhere(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with a_pair() as (_, forbidden):
        says(monkeypatch, PERMITTED)
        make = judged(CASES[name], NAME, forbidden.port)
        says(monkeypatch, FORBIDDEN)
        with pytest.raises(Invalid) as met:
            check(make)
        assert forbidden.connections == 0
    names_all(met.value, NAME, "not a public address", "MILLRACE_API__PRIVATE_TARGETS")
    assert FORBIDDEN not in str(met.value)


@pytest.mark.parametrize("name", CASES)
def test_the_connection_goes_to_the_judged_address_whatever_libc_says(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_pair(CASES[name].server) as (permitted, forbidden):
        says(monkeypatch, PERMITTED)
        with suppress(Exception):
            check(judged(CASES[name], NAME, forbidden.port, f"http://{NAME}:{forbidden.port}/token"))
        assert (permitted.connections > 0, forbidden.connections) == (True, 0)


@pytest.mark.parametrize("status", REDIRECTS)
@pytest.mark.parametrize("name", OVER_HTTP)
def test_redirects_are_not_followed(name: str, status: int) -> None:
    with counting(FORBIDDEN) as forbidden:
        there = f"http://{FORBIDDEN}:{forbidden.port}/inside"
        with counting(PERMITTED, answers_http(lambda _: (status, {"Location": there}, b""))) as permitted:
            with pytest.raises((MillraceError, OSError)) as met:
                check(judged(CASES[name], PERMITTED, permitted.port))
            assert (permitted.connections > 0, forbidden.connections) == (True, 0)
    names_all(met.value, PERMITTED, str(status), "Redirects are not followed: give the address it points to")


@pytest.mark.parametrize("name", ["files-hdfs", "delta-hdfs"])
def test_a_name_node_names_no_data_node_that_is_forbidden(name: str) -> None:
    with counting(FORBIDDEN) as forbidden:
        there = json.dumps({"Location": f"http://{FORBIDDEN}:{forbidden.port}/data", "boolean": True}).encode()
        with counting(PERMITTED, answers_http(lambda _: (200, {}, there))) as permitted:
            with pytest.raises(Invalid, match="not a public address"):
                check(judged(CASES[name], PERMITTED, permitted.port))
            assert forbidden.connections == 0


def test_bigquery_sends_rows_to_no_forbidden_address() -> None:
    table = definition([ID, TEXT])
    with counting(FORBIDDEN) as forbidden:
        there = f"http://{FORBIDDEN}:{forbidden.port}/upload/session"
        with counting(PERMITTED, answers_http(table_of_bigquery(there))) as permitted:
            sink = judged(CASES["bigquery"], PERMITTED, permitted.port)()
            with pytest.raises(Invalid, match="not a public address"):
                sink.write(Work(table, [rows(table, [(1, "a", 7, False)])]))
            assert (permitted.connections > 0, forbidden.connections) == (True, 0)
            sink.close()


def test_a_cassandra_node_announces_no_node_that_is_forbidden() -> None:
    with a_pair(announces(PERMITTED, FORBIDDEN)) as (permitted, forbidden):
        sink = judged(CASES["cassandra"], PERMITTED, permitted.port)()
        assert isinstance(sink, CassandraSink)
        with pytest.raises(InvalidRequest, match="not here"):
            sink.check()
        known = {str(host.address): host.is_up for host in sink._cluster.metadata.all_hosts()}
        assert set(known) == {PERMITTED, FORBIDDEN}, "the driver has learned of the other node"
        assert forbidden.connections == 0
        sink.close()


def test_a_webhook_of_events_follows_the_same_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_pair() as (permitted, forbidden):
        url = parse_target(f"http://{NAME}:{forbidden.port}/x")
        says(monkeypatch, PERMITTED)
        assert asyncio.run(http.post(url, {}, b"{}", ALLOWED, 5)).status == 400
        says(monkeypatch, FORBIDDEN)
        with pytest.raises(Invalid, match="not a public address"):
            asyncio.run(http.post(url, {}, b"{}", ALLOWED, 5))
        assert (permitted.connections, forbidden.connections) == (1, 0)


@pytest.mark.parametrize("status", REDIRECTS)
def test_a_webhook_of_events_follows_no_redirects(status: int) -> None:
    with counting(FORBIDDEN) as forbidden:
        there = f"http://{FORBIDDEN}:{forbidden.port}/inside"
        with counting(PERMITTED, answers_http(lambda _: (status, {"Location": there}, b""))) as permitted:
            url = parse_target(f"http://{PERMITTED}:{permitted.port}/x")
            assert asyncio.run(http.post(url, {}, b"{}", ALLOWED, 5)).status == status
        assert forbidden.connections == 0
