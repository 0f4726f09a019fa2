"""Quality reports and trends; imports that wait to be released."""

from typing import Any, cast

from millrace.client.connection import Connection, path_part
from millrace.client.documents import ImportDocument


def quality_of(connection: Connection, import_id: str) -> dict[str, Any]:
    return cast(dict[str, Any], connection.json("GET", f"/v1/imports/{path_part(import_id)}/quality"))


def quality_trend(connection: Connection, tenant: str, table: str, last: int = 20) -> dict[str, Any]:
    route = f"/v1/tenants/{path_part(tenant)}/tables/{path_part(table)}/quality"
    return cast(dict[str, Any], connection.json("GET", route, params={"last": str(last)}))


def release(connection: Connection, import_id: str) -> ImportDocument:
    return cast(ImportDocument, connection.json("POST", f"/v1/imports/{path_part(import_id)}/release"))
