"""What sinks of tests are opened with: the environment's settings, loopback allowed, no secret but those of tests."""

from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_network

from millrace.exchange.places import places_below
from millrace.model.sinks import SinkTarget
from millrace.settings import Settings
from millrace.sink.connector import Connector
from millrace.sink.context import SinkContext
from millrace.sink.registry import open_connector
from millrace.sink.secrets import read_secret

LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


def no_secret(reference: str) -> str:
    """But for those that a target of these tests names."""
    assert reference.startswith("env:MILLRACE_SECRET_TEST_"), f"nobody asked for {reference}"
    return read_secret(reference)


def sink_context(secret: Callable[[str], str] = no_secret) -> SinkContext:
    settings = Settings()
    return replace(SinkContext.of(settings, places_below(settings.home)), allowed=LOOPBACK, secret=secret)


def open_target(target: SinkTarget, secret: Callable[[str], str] = no_secret) -> Connector:
    return open_connector(target, sink_context(secret))
