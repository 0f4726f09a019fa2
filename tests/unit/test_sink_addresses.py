"""The addresses of sinks follow the rule of webhooks: public ones, and what the operator allows."""

from ipaddress import ip_network
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import Field

from millrace.deliver.delivery import Order, deliver
from millrace.deliver.probe import probe
from millrace.exchange.mailboxes import open_exchange
from millrace.exchange.places import places_below
from millrace.model.errors import Invalid, Unavailable
from millrace.model.queues import QueueKey
from millrace.model.sinks import SinkTarget
from millrace.outbound.addresses import Judged
from millrace.sink.context import SinkContext
from millrace.sink.registry import OURS, connector_class, open_connector, refuse_private, settings_class
from millrace.sink.settings import ConnectorSettings, Host, Uri, properties

POSTGRES = {"host": "127.0.0.1", "port": 1, "database": "d", "user": "u"}
CONTEXT = SinkContext(places_below(Path("/nowhere")))


class Named(ConnectorSettings):
    kind: ClassVar[str] = "x"

    host: Host
    hosts: list[Host] = Field([])
    url: Uri | None = None
    port: int = 7
    comment: str = ""


def target(kind: str, **settings: Any) -> SinkTarget:
    return SinkTarget("there", kind, True, settings)


@pytest.mark.parametrize(
    ("kind", "settings"), [("postgres", POSTGRES), ("cassandra", {"hosts": ["10.0.0.5"], "port": 1})]
)
def test_a_private_host_is_refused_before_anyone_connects(kind: str, settings: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="not a public address"):
        refuse_private(settings_class(kind).of(target(kind, **settings)), CONTEXT)
    with pytest.raises(Invalid, match="not a public address"):
        open_connector(target(kind, **settings), CONTEXT)


def test_it_is_refused_again_where_the_connection_is_made(tmp_path: Any) -> None:
    pins = places_below(tmp_path).pins(QueueKey("postgres", "acme", "t", "w"))
    outcome = deliver(Order(pins, target("postgres", **POSTGRES), ()), open_exchange(tmp_path), CONTEXT)
    assert (outcome.fault, "not a public address" in outcome.message) == ("sink", True)
    settings = settings_class("postgres").of(target("postgres", **POSTGRES))
    with pytest.raises(Invalid, match="not a public address"):
        connector_class("postgres")(settings, CONTEXT).check()


def test_what_the_operator_allows_is_no_longer_private() -> None:
    permitted = Judged((ip_network("127.0.0.0/8"),))
    assert permitted("127.0.0.1") == ["127.0.0.1"]
    assert (permitted.is_allowed("127.0.0.1"), permitted.is_allowed("10.0.0.1")) == (True, False)
    with pytest.raises(Invalid):
        permitted("10.0.0.1")


@pytest.mark.parametrize("host", ["169.254.169.254", "::ffff:10.0.0.1", "fe80::1", "0.0.0.0", "localhost"])
def test_special_addresses_are_private_however_they_are_written(host: str) -> None:
    with pytest.raises(Invalid):
        Judged()(host)


def test_a_name_that_is_not_known_now_may_be_known_later() -> None:
    with pytest.raises(Unavailable):
        Judged()("no-such-host.invalid")
    unknown = target("postgres", **{**POSTGRES, "host": "no-such-host.invalid"})
    refuse_private(settings_class("postgres").of(unknown), CONTEXT)


@pytest.mark.parametrize("password", ["file:acme/none", "vault:x#y", "env:MILLRACE_SECRET_ACME_NONE"])
def test_a_secret_that_does_not_exist_is_refused_although_the_host_is_away(
    password: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_SECRET_FOLDER", str(tmp_path))
    context = CONTEXT.for_tenant("acme")
    away = {**POSTGRES, "host": "no-such-host.invalid"}
    assert "is away" in (probe(target("postgres", **away), context) or "")
    with pytest.raises(Invalid, match="does not take rows") as refused:
        probe(target("postgres", **away, password=password), context)
    assert refused.value.remedy


def test_every_setting_that_names_a_host_is_found() -> None:
    given = Named(host="a", hosts=["b", "c"], url="https://f/g", comment="https://not-a-host", port=5)
    assert given.places() == [("a", 5), ("b", 5), ("c", 5), ("f", 443)]
    assert Named(host="a", url="s3://bucket/path").places() == [("a", 7)]


@pytest.mark.parametrize("kind", sorted(OURS))
def test_every_kind_says_which_of_its_settings_name_hosts_and_secrets(kind: str) -> None:
    for name, described in properties(settings_class(kind)).items():
        form = described.get("format") or described.get("items", {}).get("format")
        if any(word in name for word in ("host", "url", "endpoint", "servers")):
            assert form in ("hostname", "uri"), f"{kind}.{name}"
        if any(word in name for word in ("password", "secret", "token")):
            assert form == "secret", f"{kind}.{name}"
        assert described.get("description"), f"{kind}.{name} has no description"
