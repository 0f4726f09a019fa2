"""Changes of tables, and rejected rows on their way back: one function for every route."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from millrace.client.connection import Connection, path_part
from millrace.client.documents import ImportDocument
from millrace.client.errors import Problem

_POLL_SECONDS = 0.25


def change_table(connection: Connection, tenant: str, table: str, change: str, *, wait_turn: bool) -> dict[str, Any]:
    """Truncates, drops or restores; the answer once the op was applied, however long it waited for its turn."""
    route = f"/v1/tenants/{path_part(tenant)}/tables/{path_part(table)}"
    method, path = ("DELETE", route) if change == "drop" else ("POST", f"{route}/{change}")
    params = {} if change == "restore" else {"wait_turn": str(wait_turn).lower()}
    answer = cast(dict[str, Any], connection.json(method, path, params=params))
    return settled_op(connection, answer["op"]) if "op" in answer else answer


def settled_op(connection: Connection, op: str) -> dict[str, Any]:
    """The result of an op that was only requested; raises what the controller refused."""
    while True:
        document = connection.json("GET", f"/v1/ops/{path_part(op)}")
        if document["state"] == "refused":
            refusal = document["refusal"]
            raise Problem(409, refusal["message"], code=refusal["code"], remedy=refusal["remedy"])
        if document["state"] == "applied":
            return cast(dict[str, Any], document["result"])
        time.sleep(_POLL_SECONDS)


def revisions(connection: Connection, tenant: str, table: str) -> list[dict[str, Any]]:
    route = f"/v1/tenants/{path_part(tenant)}/tables/{path_part(table)}/revisions"
    return cast(list[dict[str, Any]], connection.json("GET", route)["items"])


def reasons(connection: Connection, import_id: str) -> list[dict[str, Any]]:
    route = f"/v1/imports/{path_part(import_id)}/errors/reasons"
    return cast(list[dict[str, Any]], connection.json("GET", route)["items"])


def replay(connection: Connection, import_id: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    route = f"/v1/imports/{path_part(import_id)}/errors/replay"
    return cast(dict[str, Any], connection.json("POST", route, json=dict(chosen)))


def discard(connection: Connection, import_id: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    route = f"/v1/imports/{path_part(import_id)}/errors/discard"
    return cast(dict[str, Any], connection.json("POST", route, json=dict(chosen)))


def amend(connection: Connection, import_id: str, path: Path, options: Mapping[str, str]) -> ImportDocument:
    route = f"/v1/imports/{path_part(import_id)}/errors/amend"
    params = {**options, "file_name": path.name}
    return cast(ImportDocument, connection.json("POST", route, params=params, content=path.read_bytes()))
