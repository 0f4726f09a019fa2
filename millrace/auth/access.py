"""Who may call what: the one table of roles and endpoints. What is not in it nobody may call; a test names every route.

A token limited to some tables may call what is about a table or an import, and lists show it only those."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import HTTPConnection

from millrace.auth.tokens import Caller, Tokens
from millrace.model.errors import Forbidden, Missing
from millrace.model.roles import ADMIN, OPERATOR, READER, VIEWER, WRITER, may


@dataclass(frozen=True, slots=True)
class Access:
    """The least role, None for everybody; whether tokens limited to tables may; whether calls are in the audit log."""

    least: str | None
    by_table: bool = False
    audited: bool = False


PUBLIC = Access(None)
_TENANT, _TABLE, _IMPORT = "/v1/tenants/{tenant}", "/v1/tenants/{tenant}/tables/{table}", "/v1/imports/{import_id}"
_APP, _SPAN, _HOOK = f"{_TENANT}/app", f"{_TENANT}/spans/{{name:path}}", f"{_TENANT}/subscriptions"
_SINK = f"{_TABLE}/sinks/{{sink}}"


def _all(access: Access, *endpoints: str) -> dict[str, Access]:
    return dict.fromkeys(endpoints, access)


ACCESS: dict[str, Access] = {
    **_all(
        PUBLIC,
        "GET /openapi.json", "GET /docs", "GET /docs/oauth2-redirect", "GET /redoc",
        "HEAD /openapi.json", "HEAD /docs", "HEAD /docs/oauth2-redirect", "HEAD /redoc",
        "GET /v1/health", "GET /metrics", "GET /metrics/stream", "GET /v1/schemas", "GET /v1/schemas/{name}",
        f"OPTIONS {_TABLE}/uploads",
    ),
    # Names, states and counts; no cell of any row.
    **_all(
        Access(VIEWER),
        f"GET {_TENANT}", f"GET {_TENANT}/export", f"POST {_TENANT}/diff", "GET /v1/ops/{op_id}",
        "GET /v1/events", "GET /v1/events/stream", f"GET {_TENANT}/spans", f"GET {_SPAN}",
        f"GET {_APP}", f"GET {_APP}/runs", f"GET {_APP}/runs/{{run}}", "GET /tenant/{tenant_id}",
        f"GET {_TENANT}/usage",
    ),
    **_all(
        Access(VIEWER, by_table=True),
        "GET /v1/tenants", f"GET {_TENANT}/tables", f"GET {_TABLE}", f"GET {_TABLE}/revisions", f"GET {_TABLE}/sinks",
        f"GET {_TABLE}/quality", "GET /v1/imports", f"GET {_IMPORT}", f"GET {_IMPORT}/quality",
    ),
    # Rows, and what may quote them.
    **_all(
        Access(READER, by_table=True),
        "POST /v1/query", f"GET {_IMPORT}/errors", f"GET {_IMPORT}/errors/export", f"GET {_IMPORT}/errors/reasons",
    ),
    **_all(Access(READER), f"GET {_APP}/runs/{{run}}/files", f"GET {_APP}/runs/{{run}}/log"),
    # Rows in. Each import is in the audit log, not each of its pieces; nor each few streamed rows.
    **_all(
        Access(WRITER, by_table=True, audited=True),
        f"POST {_TABLE}/imports", f"POST {_TABLE}/uploads", "DELETE /v1/uploads/{import_id}", f"WS {_TABLE}/stream",
        f"POST {_IMPORT}/cancel", f"POST {_IMPORT}/errors/replay", f"POST {_IMPORT}/errors/discard",
        f"POST {_IMPORT}/errors/amend",
    ),
    **_all(
        Access(WRITER, by_table=True),
        f"POST {_TABLE}/rows", f"POST {_TABLE}/validate", "HEAD /v1/uploads/{import_id}",
        "PATCH /v1/uploads/{import_id}",
    ),
    **_all(
        Access(WRITER, audited=True),
        f"POST {_SPAN}", f"POST {_SPAN}/end", f"POST {_SPAN}/abort", f"POST {_APP}/run", "POST /upload-file/{tenant_id}",
    ),
    **_all(Access(WRITER), f"POST {_SPAN}/touch"),
    # What tables are, where rows and events go, who may come in.
    **_all(
        Access(ADMIN, audited=True),
        f"PUT {_TABLE}", f"DELETE {_TABLE}", f"POST {_TABLE}/truncate", f"POST {_TABLE}/restore",
        f"POST {_SINK}/resume", f"POST {_SINK}/waive", f"POST {_IMPORT}/release",
        f"POST {_HOOK}", f"PATCH {_HOOK}/{{name}}", f"DELETE {_HOOK}/{{name}}", f"POST {_HOOK}/{{name}}/rotate",
        f"POST {_HOOK}/{{name}}/test", "POST /v1/tokens", "DELETE /v1/tokens/{name}", f"POST {_TENANT}/key/rotate",
    ),
    **_all(
        Access(ADMIN),
        f"POST {_TABLE}/diff", f"POST {_SINK}/check", f"GET {_HOOK}", f"GET {_HOOK}/{{name}}", "GET /v1/tokens",
        "GET /v1/audit", f"GET {_TENANT}/key",
    ),
    # What was agreed, and what costs others.
    **_all(
        Access(OPERATOR, audited=True),
        f"PUT {_TENANT}", f"DELETE {_TENANT}", f"POST {_TENANT}/restore", f"POST {_TENANT}/erase",
        f"DELETE {_TENANT}/key",
    ),
    **_all(Access(OPERATOR), "GET /v1/apps", "GET /v1/usage", "GET /v1/erasures/{tenant}"),
}  # fmt: skip


def endpoint_of(connection: HTTPConnection) -> str:
    """As the table names it: the method and the path with the names of its parts."""
    scope = connection.scope
    path = getattr(scope.get("route"), "path", scope["path"])
    return f"{'WS' if scope['type'] == 'websocket' else scope['method']} {path}"


def caller_of(connection: HTTPConnection, tokens: Tokens) -> Caller:
    """Who asks, if they may. Another's tenant or table is missing before anything else is said of it."""
    known: Caller | None = getattr(connection.state, "caller", None)
    if known is not None:
        return known
    caller = tokens.caller(connection.headers.get("authorization"))
    connection.state.caller = caller
    refuse_unless_may(caller, endpoint_of(connection), connection.path_params)
    return caller


def refuse_unless_may(caller: Caller, endpoint: str, names: Mapping[str, Any]) -> None:
    tenant = names.get("tenant", names.get("tenant_id"))
    if tenant is not None:
        caller.must_see(tenant)
    access = ACCESS.get(endpoint)
    if access is None:
        raise Missing("There is nothing here.")
    if access.least is None:
        return
    if not may(caller.role, access.least):
        raise Forbidden(
            f"A {caller.role} may not do this.", remedy=f"Use a token of the role {access.least}, or a higher one."
        )
    if caller.tables is not None and not access.by_table:
        raise Forbidden("The token is limited to some tables, and this is not about one.")
    if tenant is not None and "table" in names:
        caller.must_see_table(tenant, names["table"])
