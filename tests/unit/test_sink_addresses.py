"""The addresses of sinks follow the rule of webhooks: public ones, and what the operator allows."""

from collections.abc import Iterator
from typing import Any

import pytest

from millrace.deliver.delivery import Order, deliver
from millrace.exchange.mailboxes import open_exchange
from millrace.model.errors import Invalid, Unavailable
from millrace.model.sinks import SinkTarget
from millrace.sink import addresses
from millrace.sink.addresses import allow, permitted, places, refuse_private
from millrace.sink.registry import OURS, sink_class

POSTGRES = {"host": "127.0.0.1", "port": 1, "database": "d", "user": "u"}
SCHEMA: dict[str, Any] = {
    "properties": {
        "host": {"type": "string", "format": "hostname"},
        "hosts": {"type": "array", "items": {"type": "string", "format": "hostname"}},
        "servers": {"type": "string", "format": "host-port"},
        "url": {"type": "string", "format": "uri"},
        "port": {"type": "integer", "default": 7},
        "comment": {"type": "string"},
    }
}


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = addresses._allowed
    allow([])
    yield
    addresses._allowed = before


def target(kind: str, **settings: Any) -> SinkTarget:
    return SinkTarget("there", kind, True, settings)


@pytest.mark.parametrize(
    ("kind", "settings"), [("postgres", POSTGRES), ("cassandra", {"hosts": ["10.0.0.5"], "port": 1})]
)
def test_a_private_host_is_refused_before_anyone_connects(kind: str, settings: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="not a public address"):
        refuse_private(target(kind, **settings), sink_class(kind).settings_schema)


def test_it_is_refused_again_where_the_connection_is_made(tmp_path: Any) -> None:
    outcome = deliver(Order(str(tmp_path), target("postgres", **POSTGRES), ()), open_exchange(tmp_path))
    assert (outcome.fault, "not a public address" in outcome.message) == ("sink", True)
    with pytest.raises(Invalid, match="not a public address"):
        sink_class("postgres")(target("postgres", **POSTGRES), str).check()


def test_what_the_operator_allows_is_no_longer_private() -> None:
    allow(["127.0.0.0/8"])
    assert permitted("127.0.0.1") == ["127.0.0.1"]
    with pytest.raises(Invalid):
        permitted("10.0.0.1")


@pytest.mark.parametrize("host", ["169.254.169.254", "::ffff:10.0.0.1", "fe80::1", "0.0.0.0", "localhost"])
def test_special_addresses_are_private_however_they_are_written(host: str) -> None:
    with pytest.raises(Invalid):
        permitted(host)


def test_a_name_that_is_not_known_now_may_be_known_later() -> None:
    with pytest.raises(Unavailable):
        permitted("no-such-host.invalid")
    refuse_private(
        target("postgres", **{**POSTGRES, "host": "no-such-host.invalid"}), sink_class("postgres").settings_schema
    )


def test_every_setting_that_names_a_host_is_found() -> None:
    given = target(
        "x", host="a", hosts=["b", "c"], servers="d:9, e", url="https://f/g", comment="https://not-a-host", port=5
    )
    assert places(given, SCHEMA) == [("a", 5), ("b", 5), ("c", 5), ("d", 9), ("e", 5), ("f", 443)]
    assert places(target("x", url="s3://bucket/path"), SCHEMA) == []


@pytest.mark.parametrize("kind", sorted(OURS))
def test_every_kind_says_which_of_its_settings_name_hosts_and_secrets(kind: str) -> None:
    said = sink_class(kind).settings_schema["properties"]
    for name, one in said.items():
        form = one.get("format") or one.get("items", {}).get("format")
        if any(word in name for word in ("host", "url", "endpoint", "servers")):
            assert form in ("hostname", "host-port", "uri"), f"{kind}.{name}"
        if any(word in name for word in ("password", "secret", "token")):
            assert form == "secret", f"{kind}.{name}"
        assert one.get("description"), f"{kind}.{name} has no description"
