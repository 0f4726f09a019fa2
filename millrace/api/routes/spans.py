"""Spans: begun, ended, aborted, kept alive, watched. The controller decides; here it is asked and shown."""

import asyncio
import time
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field
from sqlalchemy import func, select, update

from millrace.api.bookkeeping import surely
from millrace.api.deps import FeedDep, LimitsDep, OpLogDep, StoreDep, guarded_router
from millrace.api.parameters import RequestBody
from millrace.auth.access import allows
from millrace.model.errors import Clash, Invalid, Missing
from millrace.model.limits import REMOVAL_SECONDS, over_limit
from millrace.model.moments import iso
from millrace.model.names import checked_name, checked_span, span_lineage
from millrace.model.ops.spans import AbortSpan, BeginSpan, EndSpan
from millrace.model.roles import VIEWER, WRITER
from millrace.store import tables as t
from millrace.store.engine import ControlStore

router = guarded_router(prefix="/v1/tenants/{tenant}/spans", tags=["spans"])
LONGEST_WAIT_SECONDS = 30.0
MOST_LISTED = 1000
LONGEST_LEASE_SECONDS = 30 * 86_400
OVER = ("ended", "aborted")
NOT_OVER = ("open", "ending")
# The last words of routes, so they cannot be words of a name.
VERBS = {"end", "abort", "touch"}


# Models, not single fields: of a body that is not JSON, a field with a default would be ignored without a word.
class Beginning(RequestBody):
    lease_seconds: int | None = Field(None, ge=1, le=LONGEST_LEASE_SECONDS)


class Ending(RequestBody):
    reason: str = Field("", max_length=500)


@router.get("")
@allows(VIEWER)
def list_spans(
    tenant: str,
    store: StoreDep,
    state: str | None = None,
    prefix: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 100,
) -> dict[str, Any]:
    """The newest first; with `prefix`, that span and those below it."""
    wanted = select(t.spans).where(t.spans.c.tenant == tenant)
    if state is not None:
        wanted = wanted.where(t.spans.c.state == state)
    if prefix is not None:
        top = checked_span(prefix.rstrip("/"))
        wanted = wanted.where((t.spans.c.name == top) | t.spans.c.name.startswith(f"{top}/", autoescape=True))
    rows = store.rows(wanted.order_by(t.spans.c.begun_us.desc(), t.spans.c.name).limit(limit))
    return {"items": [_document(row) for row in rows]}


@router.get("/{name:path}")
@allows(VIEWER)
async def show_span(
    tenant: str, name: str, store: StoreDep, feed: FeedDep, wait: Annotated[float, Query(ge=0)] = 0
) -> dict[str, Any]:
    """The span; with `wait`, as soon as it is over or the seconds have passed. Looking renews no lease."""
    if wait > 0:
        async with feed.span_end(tenant, name) as over:
            document = await asyncio.to_thread(_shown, store, tenant, name)
            if document["state"] in OVER:
                return document
            await asyncio.wait([over], timeout=min(wait, LONGEST_WAIT_SECONDS))
    return await asyncio.to_thread(_shown, store, tenant, name)


@router.post("/{name:path}/end")
@allows(WRITER, audited=True)
async def end_span(tenant: str, name: str, store: StoreDep, op_log: OpLogDep) -> dict[str, Any]:
    """Nothing more joins; the span ends when everything in it has ended."""
    await op_log.applied(EndSpan(checked_name("tenant", tenant), checked_span(name)))
    return await surely(_shown, store, tenant, name)


@router.post("/{name:path}/abort")
@allows(WRITER, audited=True)
async def abort_span(
    tenant: str, name: str, store: StoreDep, op_log: OpLogDep, ending: Ending | None = None
) -> dict[str, Any]:
    """The span and those above it can no longer end well. Imports in it go on."""
    reason = ending.reason if ending else ""
    await op_log.applied(AbortSpan(checked_name("tenant", tenant), checked_span(name), reason=reason))
    return await surely(_shown, store, tenant, name)


@router.post("/{name:path}/touch")
@allows(WRITER)
def touch_span(tenant: str, name: str, store: StoreDep) -> dict[str, Any]:
    """Renews the lease of the span and of those above it."""
    document = _shown(store, tenant, name)
    if document["state"] in OVER:
        raise Clash(
            f"The span {name!r} is {document['state']}.", remedy="Begin a span of another name.", code="span_over"
        )
    lineage = (t.spans.c.tenant == tenant, t.spans.c.name.in_(span_lineage(name)), t.spans.c.state.not_in(OVER))
    with store.write() as connection:
        connection.execute(update(t.spans).where(*lineage).values(seen_us=time.time_ns() // 1000))
    return _shown(store, tenant, name)


@router.post("/{name:path}", status_code=201)
@allows(WRITER, audited=True)
async def begin_span(
    tenant: str,
    name: str,
    store: StoreDep,
    op_log: OpLogDep,
    limits: LimitsDep,
    beginning: Beginning | None = None,
) -> dict[str, Any]:
    """Opens the span and every level above it that is not there yet; one that is open already stays as it is."""
    checked_name("tenant", tenant)
    if VERBS & set(checked_span(name).split("/")):
        raise Invalid(f"{name!r} is not a span name.", remedy=f"Not a level may be one of: {', '.join(sorted(VERBS))}.")
    await asyncio.to_thread(_refuse_one_more, store, tenant, limits.spans)
    lease_seconds = beginning.lease_seconds if beginning else None
    await op_log.applied(BeginSpan(tenant, name, lease_seconds=lease_seconds))
    return await surely(_shown, store, tenant, name)


def _refuse_one_more(store: ControlStore, tenant: str, most: int) -> None:
    is_open = t.spans.c.state.in_(NOT_OVER)
    found = store.first(select(func.count().label("open")).where(is_open, t.spans.c.tenant == tenant))
    if found is not None and found.open >= most:
        raise over_limit(
            tenant, "spans", "open spans", most, used=found.open, remedy="End some first.",
            retry_seconds=REMOVAL_SECONDS,
        )  # fmt: skip


def _shown(store: ControlStore, tenant: str, name: str) -> dict[str, Any]:
    row = store.first(select(t.spans).where(t.spans.c.tenant == tenant, t.spans.c.name == name))
    if row is None:
        raise Missing(
            f"There is no span {name[:100]!r} of {tenant}.",
            remedy="Begin it with `millrace span begin`.",
            code="no_span",
        )
    return _document(row)


def _document(row: Any) -> dict[str, Any]:
    ended = row.ended_us or time.time_ns() // 1000
    return {
        "tenant": row.tenant,
        "name": row.name,
        "parent": row.parent,
        "state": row.state,
        "imports": row.imports,
        "open_members": row.open_members,
        "rows": {verdict: row.counts.get(verdict, 0) for verdict in ("read", "accepted", "rejected", "ignored")},
        "begun_at": iso(row.begun_us),
        "ended_at": iso(row.ended_us),
        "seconds": round(max(ended - row.begun_us, 0) / 1e6, 3),
        "lease_seconds": row.lease_seconds,
        "expires_at": iso(row.seen_us + row.lease_seconds * 1_000_000) if row.state == "open" else None,
        "error": row.error,
    }
