"""What this build of the platform can do, asked of its OpenAPI document."""

from collections.abc import Iterable, Mapping
from typing import Any

STREAMS, TRUNCATE, SPANS, WEBHOOKS, DELETES = "streams", "truncate", "spans", "webhooks", "deletes"
TABLE = "/v1/tenants/{tenant}/tables/{table}"
ROUTES = {
    STREAMS: ("post", f"{TABLE}/rows"),
    TRUNCATE: ("post", f"{TABLE}/truncate"),
    SPANS: ("post", "/v1/tenants/{tenant}/spans/{name}"),
    WEBHOOKS: ("post", "/v1/tenants/{tenant}/subscriptions"),
}


def probe(openapi: Mapping[str, Any]) -> set[str]:
    """The features whose routes are there; deleting by file is a kind of import."""
    paths = openapi.get("paths", {})
    found = {name for name, (method, path) in ROUTES.items() if method in paths.get(path, {})}
    imports = paths.get(f"{TABLE}/imports", {}).get("post", {})
    if any(parameter["name"] == "kind" for parameter in imports.get("parameters", [])):
        found.add(DELETES)
    return found


def missing(found: Iterable[str]) -> list[str]:
    return sorted({*ROUTES, DELETES} - set(found))
