"""Spans of tenants: begun, ended, aborted, kept alive, waited for."""

from typing import Any

from millrace.client.documents import SpanDocument, is_span_over
from millrace.client.patience import LONGEST_POLL_SECONDS, PATIENCE_SECONDS, poll
from millrace.client.resource import ResourceClient, at, given
from millrace.model.errors import Invalid

Spans = list[SpanDocument]
# These words end a route, so as part of a name they would reach another one.
_VERBS = {"end", "abort", "touch"}


class SpanClient(ResourceClient):
    def begin(self, tenant: str, name: str, *, lease_seconds: int | None = None) -> SpanDocument:
        """Opens it and every level above it; one that is open already stays as it is."""
        return self._post(_span(tenant, name), {} if lease_seconds is None else {"lease_seconds": lease_seconds})

    def end(self, tenant: str, name: str) -> SpanDocument:
        """Nothing more joins it; it ends when everything in it has."""
        return self._post(_span(tenant, name, "end"), {})

    def abort(self, tenant: str, name: str, *, reason: str = "") -> SpanDocument:
        return self._post(_span(tenant, name, "abort"), {"reason": reason})

    def touch(self, tenant: str, name: str) -> SpanDocument:
        """Renews its lease and those of the levels above it."""
        return self._post(_span(tenant, name, "touch"), {})

    def show(self, tenant: str, name: str, *, wait: float = 0) -> SpanDocument:
        """The span now, or at most `wait` seconds from now when it is over."""
        params = given(wait=min(wait, LONGEST_POLL_SECONDS)) if wait else {}
        return self._ask(SpanDocument, "GET", _span(tenant, name), params=params)

    def list(self, tenant: str, *, state: str | None = None, prefix: str | None = None, limit: int = 100) -> Spans:
        params = given(state=state, prefix=prefix, limit=limit)
        return self._items(SpanDocument, at("tenants", tenant, "spans"), params=params)

    def wait(
        self, tenant: str, name: str, *, timeout: float | None = None, patience: float = PATIENCE_SECONDS
    ) -> SpanDocument:
        """The span once it is over or time is up; a platform away for up to `patience` seconds is no failure."""
        return poll(lambda left: self.show(tenant, name, wait=left), is_span_over, timeout, patience)

    def _post(self, path: str, body: dict[str, Any]) -> SpanDocument:
        return self._ask(SpanDocument, "POST", path, json=body)


def _span(tenant: str, name: str, *verb: str) -> str:
    levels = name.split("/")
    if not all(levels) or _VERBS & set(levels):
        raise Invalid(f"{name!r} is not a span name.", remedy=f"No level may be empty or one of: {sorted(_VERBS)}.")
    return at("tenants", tenant, "spans", *levels, *verb)
