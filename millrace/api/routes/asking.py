"""SQL over the tables the caller may read, and tokens."""

import asyncio
from functools import partial
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from sqlalchemy import select

from millrace.api.deps import CallerDep, PlatformDep
from millrace.api.documents import tables_of
from millrace.api.platform import Platform
from millrace.api.tokens import Caller
from millrace.model.columns import stored_schema
from millrace.model.errors import Missing
from millrace.model.names import checked_name
from millrace.read.query import Limits, QueryResult, ReadableTable, run_query
from millrace.sink.lake_places import table_store
from millrace.sink.secrets import read_secret
from millrace.store import tables as t

router = APIRouter(prefix="/v1", tags=["query"])


class Question(BaseModel):
    sql: str = Field(max_length=100_000)
    max_rows: int = Field(1000, ge=1)


class NewToken(BaseModel):
    name: str = Field(min_length=1, max_length=100)
    tenant: str | None = None


@router.post("/query")
async def query(question: Question, caller: CallerDep, platform: PlatformDep) -> dict[str, Any]:
    found = await asyncio.to_thread(_run, platform, caller, question)
    columns = [{"name": name, "type": kind} for name, kind in found.columns]
    return {"columns": columns, "rows": found.rows, "truncated": found.truncated, "seconds": found.seconds}


def _run(platform: Platform, caller: Caller, question: Question) -> QueryResult:
    with platform.store.read() as connection:
        definitions = tables_of(connection, caller.tenant)
    readable = [
        ReadableTable(
            d.tenant, d.table.name, stored_schema(d.columns), partial(table_store, platform.home, d, read_secret)
        )
        for d in definitions
    ]
    limits = platform.settings.query
    return run_query(
        readable, question.sql, Limits(limits.seconds, limits.memory_mb, min(question.max_rows, limits.rows))
    )


@router.post("/tokens", status_code=201)
def make_token(wanted: NewToken, caller: CallerDep, platform: PlatformDep) -> dict[str, str]:
    caller.must_be_admin()
    if wanted.tenant is not None:
        with platform.store.read() as connection:
            known = connection.execute(
                select(t.tenants.c.name).where(t.tenants.c.name == checked_name("tenant", wanted.tenant))
            )
            if known.first() is None:
                raise Missing(f"There is no tenant {wanted.tenant!r}.", code="no_tenant")
    return {"token": platform.tokens.make(wanted.name, wanted.tenant)}


@router.get("/tokens")
def list_tokens(caller: CallerDep, platform: PlatformDep) -> dict[str, Any]:
    caller.must_be_admin()
    return {"items": platform.tokens.list()}


@router.delete("/tokens/{name}", status_code=204)
def revoke_token(name: str, caller: CallerDep, platform: PlatformDep) -> None:
    caller.must_be_admin()
    platform.tokens.revoke(name)
