"""Tenants as a whole: what runs as documents, leaving and coming back."""

from typing import Any, cast

from millrace.client.changing import settled_op
from millrace.client.connection import Connection, path_part


def export_tenant(connection: Connection, tenant: str) -> dict[str, Any]:
    """Its agreement and its tables as documents that can be applied again."""
    return cast(dict[str, Any], connection.json("GET", f"/v1/tenants/{path_part(tenant)}/export"))


def delete_tenant(connection: Connection, tenant: str, *, confirm: str, grace_days: int) -> dict[str, Any]:
    params = {"confirm": confirm, "grace_days": str(grace_days)}
    return _settled(connection, connection.json("DELETE", f"/v1/tenants/{path_part(tenant)}", params=params))


def restore_tenant(connection: Connection, tenant: str) -> dict[str, Any]:
    return _settled(connection, connection.json("POST", f"/v1/tenants/{path_part(tenant)}/restore"))


def erase_tenant(connection: Connection, tenant: str, *, confirm: str, now: bool, wait: float) -> dict[str, Any]:
    """The receipt: what went, what expires when, what remains."""
    params = {"confirm": confirm, "now": str(now).lower(), "wait": f"{wait:g}"}
    route = f"/v1/tenants/{path_part(tenant)}/erase"
    return cast(dict[str, Any], connection.json("POST", route, params=params, timeout=3 * wait + 60))


def _settled(connection: Connection, answer: dict[str, Any]) -> dict[str, Any]:
    return settled_op(connection, answer["op"]) if "op" in answer else answer
