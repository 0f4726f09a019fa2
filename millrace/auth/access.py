"""Who may call what. An endpoint declares it where it is defined; one that declares nothing nobody may call.

A token limited to some tables may call what is about a table or an import, and lists show it only those."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute

from millrace.auth.tokens import Caller, Tokens
from millrace.model.errors import Forbidden, Missing
from millrace.model.roles import may

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class EndpointAccess:
    """The lowest role that may call, None for everybody; whether tokens limited to tables may call; whether calls are
    written to the audit log."""

    least: str | None
    by_table: bool = False
    audited: bool = False


PUBLIC = EndpointAccess(None)
_DECLARED: dict[Callable[..., Any], EndpointAccess] = {}


def allows(least: str, *, by_table: bool = False, audited: bool = False) -> Callable[[Endpoint], Endpoint]:
    """Decorates the function of an endpoint, below its route."""

    def declare(endpoint: Endpoint) -> Endpoint:
        _DECLARED[endpoint] = EndpointAccess(least, by_table, audited)
        return endpoint

    return declare


def public(endpoint: Endpoint) -> Endpoint:
    """Decorates the function of an endpoint that needs no token."""
    _DECLARED[endpoint] = PUBLIC
    return endpoint


def same_access(endpoint: Endpoint, of: Callable[..., Any]) -> Endpoint:
    """For a function that stands in for an endpoint's own."""
    if of in _DECLARED:
        _DECLARED[endpoint] = _DECLARED[of]
    return endpoint


def access_table(routes: Iterable[BaseRoute]) -> dict[str, EndpointAccess]:
    """Every endpoint as METHOD PATH, those of included routers too. Raises if one of them declares no access."""
    table: dict[str, EndpointAccess] = {}
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is not None:
            table |= access_table(included.routes)
            continue
        for method in sorted(getattr(route, "methods", None) or ("WS",)):
            name = f"{method} {getattr(route, 'path', route)}"
            access = _DECLARED.get(getattr(route, "endpoint", None))  # type: ignore[arg-type]
            if access is None:
                raise TypeError(f"{name} declares no access: decorate its function with `allows` or `public`.")
            table[name] = access
    return table


def endpoint_of(connection: HTTPConnection) -> str:
    """The method, and the path with the names of its parts."""
    scope = connection.scope
    path = getattr(scope.get("route"), "path", scope["path"])
    return f"{'WS' if scope['type'] == 'websocket' else scope['method']} {path}"


def access_of(connection: HTTPConnection) -> EndpointAccess | None:
    endpoint = getattr(connection.scope.get("route"), "endpoint", None)
    return None if endpoint is None else _DECLARED.get(endpoint)


async def caller_of(connection: HTTPConnection, tokens: Tokens) -> Caller:
    """The caller, if it may call this endpoint. Another's tenant or table is missing before anything else is said of it."""
    known: Caller | None = getattr(connection.state, "caller", None)
    if known is not None:
        return known
    authorization = connection.headers.get("authorization")
    if not tokens.is_recent(authorization):
        caller = await asyncio.to_thread(tokens.caller, authorization)
    else:
        caller = tokens.caller(authorization)
    connection.state.caller = caller
    refuse_unless_may(caller, access_of(connection), connection.path_params)
    return caller


def refuse_unless_may(caller: Caller, access: EndpointAccess | None, names: Mapping[str, Any]) -> None:
    """`names` are the parts of the path."""
    tenant = names.get("tenant", names.get("tenant_id"))
    if tenant is not None:
        caller.must_see(tenant)
    if access is None:
        raise Missing("There is nothing here.")
    if access.least is None:
        return
    if not may(caller.role, access.least):
        raise Forbidden(
            f"The role {caller.role} may not do this.",
            remedy=f"Use a token of the role {access.least}, or a higher one.",
        )
    if caller.tables is not None and not access.by_table:
        raise Forbidden("The token is limited to some tables, and this is not about one.")
    if tenant is not None and "table" in names:
        caller.must_see_table(tenant, names["table"])
