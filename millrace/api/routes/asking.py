"""SQL over the tables the caller may read."""

import asyncio
from functools import partial
from typing import Any

from fastapi import Request
from pydantic import Field

from millrace.api.deps import CallerDep, QuerySettingsDep, SharesDep, SinkContextDep, StoreDep, guarded_router
from millrace.api.documents.tables import tables_of
from millrace.api.parameters import RequestBody
from millrace.arrow.types import stored_schema
from millrace.auth.access import allows
from millrace.auth.tokens import Caller
from millrace.lake.store import Store
from millrace.model.roles import READER
from millrace.model.table import Definition
from millrace.read.query import QueryLimits, ReadableTable, run_query
from millrace.sink.context import SinkContext
from millrace.sink.delta.places import table_store
from millrace.store.engine import ControlStore

router = guarded_router(prefix="/v1", tags=["query"])
PATIENCE_SECONDS = 30.0


class Question(RequestBody):
    sql: str = Field(max_length=100_000)
    max_rows: int = Field(1000, ge=1)


@router.post("/query")
@allows(READER, by_table=True, audited=True)
async def query(
    question: Question,
    request: Request,
    caller: CallerDep,
    store: StoreDep,
    sink_context: SinkContextDep,
    limits: QuerySettingsDep,
    shares: SharesDep,
) -> dict[str, Any]:
    read: list[tuple[str, str]] = []
    request.state.tables_read = read
    definitions = await asyncio.to_thread(_readable, store, caller)
    readable = [
        ReadableTable(d.tenant, d.table.name, stored_schema(d.columns), partial(_open, read, sink_context, d))
        for d in definitions
    ]
    most = QueryLimits(limits.seconds, limits.memory_mb, min(question.max_rows, limits.rows))
    found = await shares.queries.run(run_query, readable, question.sql, most, patience_seconds=PATIENCE_SECONDS)
    columns = [{"name": name, "type": kind} for name, kind in found.columns]
    return {"columns": columns, "rows": found.rows, "truncated": found.truncated, "seconds": found.seconds}


def _readable(store: ControlStore, caller: Caller) -> list[Definition]:
    with store.read() as connection:
        return [one for one in tables_of(connection, caller.tenant) if caller.sees_table(one.table.name)]


def _open(read: list[tuple[str, str]], context: SinkContext, definition: Definition) -> Store:
    """Notes the table for the audit log: a query opens those that it reads."""
    read.append((definition.tenant, definition.table.name))
    return table_store(context, definition)
