"""What a declaration would change, asked of the platform; and a table begun anew."""

from collections.abc import Mapping
from typing import Any, TypedDict, cast

from millrace.client.connection import Connection, path_part
from millrace.client.documents import Applied
from millrace.client.errors import Problem

MISSING = 404


class Refusal(TypedDict):
    code: str
    message: str
    remedy: str


class Difference(TypedDict):
    """`revision` is the one in force, 0 if there is none; without changes and refusal nothing would happen."""

    new: bool
    revision: int
    changes: list[str]
    ddl: list[str]
    refusal: Refusal | None


def diff_table(
    connection: Connection, tenant: str, table: str, declaration: Mapping[str, Any], *, new_generation: bool = False
) -> Difference:
    params = {"new_generation": "true"} if new_generation else {}
    route = f"{_route(tenant, table)}/diff"
    return cast(Difference, connection.json("POST", route, params=params, json=dict(declaration)))


def apply_generation(connection: Connection, tenant: str, table: str, declaration: Mapping[str, Any]) -> Applied:
    """Declares the table anew, whatever it was: it begins without rows."""
    params = {"new_generation": "true"}
    return cast(Applied, connection.json("PUT", _route(tenant, table), params=params, json=dict(declaration)))


def diff_tenant(connection: Connection, tenant: str, agreement: Mapping[str, Any]) -> Difference:
    """The same of a service agreement, compared here: it may be changed in any way."""
    try:
        known = connection.json("GET", f"/v1/tenants/{path_part(tenant)}")
    except Problem as problem:
        if problem.status != MISSING:
            raise
        return {"new": True, "revision": 0, "changes": [f"declare tenant {tenant}"], "ddl": [], "refusal": None}
    before, after = known["agreement"], {"client": tenant, **agreement}
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    changes = [f"{name}: {before.get(name)!r} -> {after.get(name)!r}" for name in names]
    return {"new": False, "revision": known["revision"], "changes": changes, "ddl": [], "refusal": None}


def _route(tenant: str, table: str) -> str:
    return f"/v1/tenants/{path_part(tenant)}/tables/{path_part(table)}"
