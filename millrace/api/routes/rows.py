"""Streamed rows: a few in a request, or many over one connection."""

import asyncio
from contextlib import ExitStack
from typing import Annotated, Any

from fastapi import Header, Query, Request, Response, WebSocket

from millrace.api.bodies import BodyBounds, takes
from millrace.api.deps import QuotasDep, SendersDep, StoreDep, TokensDep, guarded_router, refuse_caller
from millrace.api.documents.tables import find_table
from millrace.api.parameters import refuse_unknown_of_socket
from millrace.api.problems import problem_of
from millrace.api.rows.row_request import post_rows
from millrace.api.rows.sender_session import SenderSession
from millrace.auth.access import access_of, allows, refuse_unless_may
from millrace.model.errors import MillraceError
from millrace.model.frames import MAX_FRAME_BYTES, checked_sender, rows_of_body
from millrace.model.names import checked_name, checked_span, new_id
from millrace.model.roles import WRITER
from millrace.store.engine import ControlStore
from millrace.upload.batch import AppendKey

router = guarded_router(prefix="/v1", tags=["streamed rows"])
ROWS = BodyBounds(MAX_FRAME_BYTES, "Send fewer rows a request, stream them, or import them as a file.")


@router.post("/tenants/{tenant}/tables/{table}/rows", status_code=202)
@allows(WRITER, by_table=True)
@takes(ROWS)
async def send_rows(
    tenant: str,
    table: str,
    request: Request,
    response: Response,
    store: StoreDep,
    senders: SendersDep,
    span: str | None = None,
    wait: Annotated[float, Query(ge=0)] = 0,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> dict[str, Any]:
    """A few rows as JSON Lines or a JSON array. Answers when they are durable in Kafka; with `wait`, when they have ended."""
    append_key = await asyncio.to_thread(_append_key, store, tenant, table, span)
    key = None if idempotency_key is None else checked_sender(idempotency_key)
    rows = rows_of_body(await request.body())
    answer = await post_rows(senders, append_key, rows, key, wait)
    response.status_code = 200 if "state" in answer or "repeated" in answer else 202
    return answer


@router.websocket("/tenants/{tenant}/tables/{table}/stream")
@allows(WRITER, by_table=True, audited=True)
async def stream_rows(
    socket: WebSocket,
    tenant: str,
    table: str,
    store: StoreDep,
    senders: SendersDep,
    tokens: TokensDep,
    quotas: QuotasDep,
    stream: str | None = None,
    span: str | None = None,
) -> None:
    """Frames of JSON Lines in, each behind the number of its first row; acknowledgements and rejected rows out."""

    def check_token() -> None:
        socket.state.caller = caller = tokens.caller(socket.headers.get("authorization"))
        refuse_unless_may(caller, access_of(socket), socket.path_params)

    with ExitStack() as counted:
        try:
            await refuse_caller(socket, tokens, quotas)
            refuse_unknown_of_socket(socket)
            append_key = await asyncio.to_thread(_append_key, store, tenant, table, span)
            name = checked_sender(new_id("st") if stream is None else stream)
            # Before the connection is accepted: many may come at once.
            counted.enter_context(senders.counted(append_key, name))
        except MillraceError as refused:
            await socket.send_denial_response(problem_of(refused))
            return
        await socket.accept()
        await SenderSession(senders, socket, append_key, name, check_token).serve()


def _append_key(store: ControlStore, tenant: str, table: str, span: str | None) -> AppendKey:
    append_key = AppendKey(
        checked_name("tenant", tenant), checked_name("table", table), checked_span(span) if span else None
    )
    with store.read() as connection:
        find_table(connection, append_key.tenant, append_key.table)
    return append_key
