"""The keys that seal a tenant's rows on their way."""

from typing import Any, cast

from millrace.client.connection import Connection, path_part


def tenant_key(connection: Connection, tenant: str) -> dict[str, Any]:
    return cast(dict[str, Any], connection.json("GET", _route(tenant)))


def rotate_tenant_key(connection: Connection, tenant: str) -> dict[str, Any]:
    return cast(dict[str, Any], connection.json("POST", f"{_route(tenant)}/rotate", timeout=600))


def destroy_tenant_key(connection: Connection, tenant: str, *, confirm: str) -> dict[str, Any]:
    return cast(dict[str, Any], connection.json("DELETE", _route(tenant), params={"confirm": confirm}))


def _route(tenant: str) -> str:
    return f"/v1/tenants/{path_part(tenant)}/key"
