"""What this build of the platform can do, asked of its OpenAPI document; and what it refused when it was tried."""

from collections.abc import Iterable, Mapping
from typing import Any

ROUTES = {
    "streams": ("post", "/v1/tenants/{tenant}/tables/{table}/rows"),
    "truncate": ("post", "/v1/tenants/{tenant}/tables/{table}/truncate"),
    "spans": ("post", "/v1/tenants/{tenant}/spans"),
    "webhooks": ("post", "/v1/tenants/{tenant}/webhooks"),
}
DELETING = "deletes"


def probe(openapi: Mapping[str, Any]) -> set[str]:
    """The features whose routes are there; deleting by file is a parameter of the import route."""
    paths = openapi.get("paths", {})
    found = {name for name, (method, path) in ROUTES.items() if method in paths.get(path, {})}
    imports = paths.get("/v1/tenants/{tenant}/tables/{table}/imports", {}).get("post", {})
    if any(parameter["name"] == "deletes" for parameter in imports.get("parameters", [])):
        found.add(DELETING)
    return found


def missing(found: Iterable[str]) -> list[str]:
    return sorted({*ROUTES, DELETING} - set(found))
