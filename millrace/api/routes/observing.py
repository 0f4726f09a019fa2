"""Health, metrics and events."""

import asyncio
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Header, Query, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import AwareDatetime
from sqlalchemy import select

from millrace.api.deps import CallerDep, FeedDep, HealthDep, StoreDep, TokensDep, guarded_router
from millrace.api.following.follower import FollowedBy
from millrace.api.following.reading import newest_event
from millrace.api.following.stream import EventStream
from millrace.api.jobs.sink_watch import ParkedTable
from millrace.api.uploads.options import MOST_STORED
from millrace.auth.access import allows, public
from millrace.auth.tokens import Caller
from millrace.model.errors import Unauthorised
from millrace.model.roles import VIEWER
from millrace.store import tables as t
from millrace.store.engine import ControlStore

router = guarded_router(tags=["observing"])
PAGE = 200


@router.get("/v1/health")
@public
async def health(request: Request, health: HealthDep, tokens: TokensDep) -> JSONResponse:
    """The parts of the platform, and how many tables cannot be written; who sends a token sees which of its own, and why.
    A table in trouble concerns nobody else: the platform is well."""
    parts = await asyncio.to_thread(health.parts)
    well = all(state == "ok" for state in parts.values())
    parked = health.parked_tables()
    body: dict[str, Any] = {"status": "ok" if well else "degraded", "parts": parts, "parked_tables": len(parked)}
    with suppress(Unauthorised):
        caller = await asyncio.to_thread(tokens.caller, request.headers.get("authorization"))
        body["tables"] = [_parked_document(one) for one in parked if _sees(caller, one)]
    return JSONResponse(body, 200 if well else 503)


def _sees(caller: Caller, parked: ParkedTable) -> bool:
    return caller.tenant in (None, parked.tenant) and caller.sees_table(parked.table)


def _parked_document(parked: ParkedTable) -> dict[str, Any]:
    table = f"{parked.tenant}/{parked.table}"
    remedy = "Then `millrace sink resume {0} {1}`; or give up what waits: `millrace sink waive {0} {1}`."
    return {**asdict(parked), "table": table, "remedy": remedy.format(table, parked.sink)}


@router.get("/metrics")
@public
def metrics() -> Response:
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


@router.get("/metrics/stream")
@public
def stream_metrics(health: HealthDep) -> Response:
    return Response(health.data_plane_metrics(), media_type=CONTENT_TYPE_LATEST)


def _events(
    store: ControlStore, tenant: str | None, after: int, limit: int, newest: bool = False
) -> list[tuple[int, dict[str, Any]]]:
    wanted = select(t.events.c.number, t.events.c.event).where(t.events.c.number > after)
    if tenant is not None:
        wanted = wanted.where(t.events.c.tenant == tenant)
    order = t.events.c.number.desc() if newest else t.events.c.number
    found = [(row.number, row.event) for row in store.rows(wanted.order_by(order).limit(limit))]
    return found[::-1] if newest else found


@router.get("/v1/events")
@allows(VIEWER)
def list_events(
    caller: CallerDep,
    store: StoreDep,
    after: Annotated[int, Query(ge=0, le=MOST_STORED)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = PAGE,
    newest: bool = False,
    tenant: str | None = None,
    since: AwareDatetime | None = None,
) -> dict[str, Any]:
    """Events in order, behind the number `after` and not before `since`; with `newest`, the last ones."""
    if since is not None:
        after = max(after, newest_event(store, before=since.timestamp()))
    found = _events(store, caller.scope(tenant), after, limit, newest)
    return {"items": [event for _, event in found], "last": found[-1][0] if found else after}


@router.get("/v1/events/stream")
@allows(VIEWER)
async def follow_events(
    request: Request,
    caller: CallerDep,
    feed: FeedDep,
    after: Annotated[int, Query(ge=0, le=MOST_STORED)] = 0,
    last_event_id: Annotated[int | None, Header(ge=0, le=MOST_STORED)] = None,
    tenant: str | None = None,
) -> EventStream:
    """Events as server-sent events, from `after` or Last-Event-ID on, as they come: each tenant's in their order.

    The stream ends when its token does. A connection that reads too slowly is cut off, and goes on with Last-Event-ID."""
    feed.refuse_too_many(caller.tenant)
    who = FollowedBy(caller.tenant, caller.scope(tenant), request.headers.get("authorization"))
    return EventStream(feed.frames(who, after if last_event_id is None else last_event_id))
