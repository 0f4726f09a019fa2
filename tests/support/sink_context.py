"""What sinks of tests are opened with: the environment's settings, loopback allowed, no secret but those of tests."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from ipaddress import ip_network

from millrace.credentials.secrets import Secrets
from millrace.exchange.places import places_below
from millrace.model.secret_references import SecretReference, parse_reference
from millrace.model.sinks import SinkTarget
from millrace.settings import Settings
from millrace.sink.connector import Connector
from millrace.sink.context import SinkContext
from millrace.sink.registry import open_connector

TENANT = "acme"
# For platforms whose tenants all use the secrets of tests.
SHARED_SECRETS = json.dumps({f"env:MILLRACE_SECRET_TEST_{name}": ["*"] for name in ("WEBHOOK", "ACCESS", "SECRET")})
LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


def no_secret(reference: str) -> str:
    """But for those that a target of these tests names."""
    assert reference.startswith("env:MILLRACE_SECRET_TEST_"), f"nobody asked for {reference}"
    return Secrets().read_operators(reference)


@dataclass(frozen=True)
class TellingSecrets(Secrets):
    """Gives every tenant what a function says: whose a secret is has tests of its own."""

    tell: Callable[[str], str] = no_secret

    def check(self, tenant: str, text: str) -> SecretReference:
        return parse_reference(text)

    def read(self, tenant: str, text: str) -> str:
        return self.tell(text)

    def read_operators(self, text: str) -> str:
        return self.tell(text)


def sink_context(secret: Callable[[str], str] = no_secret) -> SinkContext:
    settings = Settings()
    context = SinkContext.of(settings, places_below(settings.home))
    return replace(context, allowed=LOOPBACK, secrets=TellingSecrets(tell=secret), tenant=TENANT)


def open_target(target: SinkTarget, secret: Callable[[str], str] = no_secret) -> Connector:
    return open_connector(target, sink_context(secret))
