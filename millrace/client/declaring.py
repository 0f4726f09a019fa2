"""What a declaration would change, asked of the platform; and a table begun anew."""

from collections.abc import Mapping
from typing import Any, TypedDict, cast

from millrace.client.connection import Connection, path_part
from millrace.client.documents import Applied


class Refusal(TypedDict):
    code: str
    message: str
    remedy: str


class DeclarationWarning(TypedDict):
    """A value that can be read but hardly be meant."""

    field: str
    message: str
    likely: str


class Difference(TypedDict):
    """`revision` is the one in force, 0 if there is none; without changes and refusal nothing would happen."""

    new: bool
    revision: int
    changes: list[str]
    ddl: list[str]
    refusal: Refusal | None
    warnings: list[DeclarationWarning]


def diff_table(
    connection: Connection,
    tenant: str,
    table: str,
    declaration: Mapping[str, Any],
    *,
    new_generation: bool = False,
    strict: bool = False,
) -> Difference:
    params = _given(new_generation=new_generation, strict=strict)
    route = f"{_route(tenant, table)}/diff"
    return cast(Difference, connection.json("POST", route, params=params, json=dict(declaration)))


def diff_tenant(
    connection: Connection, tenant: str, agreement: Mapping[str, Any], *, strict: bool = False
) -> Difference:
    """The same of a service agreement: it may be changed in any way."""
    route = f"/v1/tenants/{path_part(tenant)}/diff"
    return cast(Difference, connection.json("POST", route, params=_given(strict=strict), json=dict(agreement)))


def apply_tenant(connection: Connection, tenant: str, agreement: Mapping[str, Any], *, strict: bool = False) -> Applied:
    route = f"/v1/tenants/{path_part(tenant)}"
    return cast(Applied, connection.json("PUT", route, params=_given(strict=strict), json=dict(agreement)))


def apply_table(
    connection: Connection,
    tenant: str,
    table: str,
    declaration: Mapping[str, Any],
    *,
    new_generation: bool = False,
    strict: bool = False,
    check: bool = True,
) -> Applied:
    """With a new generation the table is declared anew, whatever it was: it begins without rows. New sinks are tried unless
    `check` is false."""
    params = {**_given(new_generation=new_generation, strict=strict), **({} if check else {"check": "false"})}
    return cast(Applied, connection.json("PUT", _route(tenant, table), params=params, json=dict(declaration)))


def _given(**flags: bool) -> dict[str, str]:
    return {name: "true" for name, is_set in flags.items() if is_set}


def _route(tenant: str, table: str) -> str:
    return f"/v1/tenants/{path_part(tenant)}/tables/{path_part(table)}"
