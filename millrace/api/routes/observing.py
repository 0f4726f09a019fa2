"""Health, metrics and events."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx2
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import select

from millrace.api.deps import CallerDep, PlatformDep
from millrace.api.platform import Platform
from millrace.api.uploads.options import MOST_STORED
from millrace.auth.tokens import Caller
from millrace.model.errors import MillraceError, Unavailable
from millrace.store import tables as t
from millrace.wire.topics import TABLE_OPS

router = APIRouter(tags=["observing"])
PAGE = 200
HEARTBEAT_SECONDS = 15.0
FAILURES_IN_VAIN = 2
LEAST_FREE_MB = 256


@router.get("/v1/health")
async def health(platform: PlatformDep) -> JSONResponse:
    parts = await asyncio.to_thread(_parts, platform)
    well = all(state == "ok" for state in parts.values())
    return JSONResponse({"status": "ok" if well else "degraded", "parts": parts}, 200 if well else 503)


def _parts(platform: Platform) -> dict[str, str]:
    parts = {}
    try:
        platform.topics.partitions(TABLE_OPS)
        parts["kafka"] = "ok"
    except MillraceError as error:
        parts["kafka"] = error.message
    for name in ("controller", "accountant", "notifier"):
        parts[name] = "ok" if name in platform.alive else "stopped"
    parts["retention"] = platform.accountant.retention
    parts["disk"] = _room(platform.exchange.places.free_bytes())
    try:
        parts["data_plane"] = _stuck(_stream_metrics(platform)) or "ok"
    except MillraceError as error:
        parts["data_plane"] = error.message
    return parts


def _room(free_bytes: int) -> str:
    free_mb = free_bytes >> 20
    return "ok" if free_mb >= LEAST_FREE_MB else f"Only {free_mb} MB are free where the home is."


def _stuck(metrics: bytes) -> str:
    """What the data plane fails at again and again; a single failure may pass."""
    found = {
        sample.labels["query"]: int(sample.value)
        for family in text_string_to_metric_families(metrics.decode())
        for sample in family.samples
        if sample.name == "millrace_query_failures" and sample.value >= FAILURES_IN_VAIN
    }
    told = ", ".join(f"{query} has failed {times} times in a row" for query, times in sorted(found.items()))
    return f"{told}; logs/data-plane.log under the home says why." if found else ""


def _stream_metrics(platform: Platform) -> bytes:
    try:
        port = platform.exchange.data_plane.metrics_port()
        if port is None:
            raise ConnectionRefusedError("The data plane has not said that it is ready.")
        return httpx2.get(f"http://127.0.0.1:{port}/metrics", timeout=2.0).content
    except (OSError, ValueError, httpx2.HTTPError) as error:
        raise Unavailable(
            "The data plane does not answer.", remedy="See its log under the home's logs folder."
        ) from error


@router.get("/metrics")
def metrics() -> Response:
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


@router.get("/metrics/stream")
def stream_metrics(platform: PlatformDep) -> Response:
    return Response(_stream_metrics(platform), media_type=CONTENT_TYPE_LATEST)


def _heard(caller: Caller, tenant: str | None) -> str | None:
    """Whose events the caller hears: those of one tenant, or of all."""
    if tenant is not None:
        caller.must_see(tenant)
    return tenant or caller.tenant


def _events(
    platform: Platform, tenant: str | None, after: int, limit: int, newest: bool = False
) -> list[tuple[int, dict[str, Any]]]:
    wanted = select(t.events.c.number, t.events.c.event).where(t.events.c.number > after)
    if tenant is not None:
        wanted = wanted.where(t.events.c.tenant == tenant)
    order = t.events.c.number.desc() if newest else t.events.c.number
    with platform.store.read() as connection:
        found = [(row.number, row.event) for row in connection.execute(wanted.order_by(order).limit(limit))]
    return found[::-1] if newest else found


@router.get("/v1/events")
def list_events(
    caller: CallerDep,
    platform: PlatformDep,
    after: Annotated[int, Query(ge=0, le=MOST_STORED)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = PAGE,
    newest: bool = False,
    tenant: str | None = None,
) -> dict[str, Any]:
    """Events in order, from `after` on; with `newest`, the last ones."""
    found = _events(platform, _heard(caller, tenant), after, limit, newest)
    return {"items": [event for _, event in found], "last": found[-1][0] if found else after}


@router.get("/v1/events/stream")
async def follow_events(
    request: Request,
    caller: CallerDep,
    platform: PlatformDep,
    after: Annotated[int, Query(ge=0, le=MOST_STORED)] = 0,
    last_event_id: Annotated[int | None, Header(ge=0, le=MOST_STORED)] = None,
    tenant: str | None = None,
) -> StreamingResponse:
    """Events as server-sent events, from `after` or Last-Event-ID on, as they come: each tenant's in their order."""
    heard = _heard(caller, tenant)

    async def lines() -> AsyncIterator[str]:
        position, beat = last_event_id if last_event_id is not None else after, time.monotonic()
        while not await request.is_disconnected():
            news = request.app.state.watch.news()
            found = await asyncio.to_thread(_events, platform, heard, position, PAGE)
            for number, event in found:
                position = number
                yield f"id: {number}\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n"
            if not found:
                await asyncio.wait([news], timeout=1.0)
            news.cancel()
            if not found and time.monotonic() - beat > HEARTBEAT_SECONDS:
                beat = time.monotonic()
                yield ": still here\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})
