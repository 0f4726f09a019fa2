"""The services that routes use, and how a route gets those that it names. `server.py` makes them."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from enum import Enum
from functools import wraps
from operator import attrgetter
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends, Request, Response
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection

from millrace.api.bodies import bounded, bounds_of
from millrace.api.declarations.default_app import DefaultApp
from millrace.api.documents.imports import VisibleImports
from millrace.api.documents.waiting import PlatformOutlook
from millrace.api.following.feed import EventFeed
from millrace.api.health import PlatformHealth
from millrace.api.jobs.erasing import Eraser
from millrace.api.jobs.rejected_rows import RejectedRows
from millrace.api.jobs.replaying import Replays
from millrace.api.op_log import OpLog
from millrace.api.parameters import query_names, refuse_unknown_parameters
from millrace.api.repair.amendments import Amendments
from millrace.api.rows.senders import Senders
from millrace.api.sealing import Sealing
from millrace.api.shares import Shares
from millrace.api.uploads.sessions import Sessions
from millrace.api.watch import Watch
from millrace.auth.access import PUBLIC, access_of, caller_of, same_access
from millrace.auth.audit import Audit
from millrace.auth.quotas import Quotas
from millrace.auth.tokens import Caller, Tokens
from millrace.exchange.app_folders import AppFolders
from millrace.exchange.apps import AppBoard
from millrace.exchange.mailboxes import Exchange
from millrace.exchange.places import Places
from millrace.exchange.queues import Queues
from millrace.model.addresses import Networks
from millrace.settings import KubernetesSettings, LimitSettings, QuerySettings, Settings, SinkSettings
from millrace.sink.context import SinkContext
from millrace.store.engine import ControlStore
from millrace.turns import ASKING, PLATFORM
from millrace.wire.client import Cluster


class Services(Protocol):
    store: ControlStore
    exchange: Exchange
    queues: Queues
    sink_context: SinkContext
    cluster: Cluster
    op_log: OpLog
    sealing: Sealing
    tokens: Tokens
    audit: Audit
    quotas: Quotas
    watch: Watch
    feed: EventFeed
    shares: Shares
    sessions: Sessions
    senders: Senders
    rejected: RejectedRows
    replays: Replays
    amendments: Amendments
    eraser: Eraser
    health: PlatformHealth
    outlook: PlatformOutlook
    settings: Settings


def _service(name: str) -> Any:
    """One of the server's services, or a part of one, by its name in `Services`."""
    find = attrgetter(name)

    async def found(connection: HTTPConnection) -> Any:
        return find(connection.app.state.services)

    return Depends(found)


StoreDep = Annotated[ControlStore, _service("store")]
ExchangeDep = Annotated[Exchange, _service("exchange")]
PlacesDep = Annotated[Places, _service("exchange.places")]
AppBoardDep = Annotated[AppBoard, _service("exchange.apps")]
AppFoldersDep = Annotated[AppFolders, _service("exchange.app_folders")]
SinkContextDep = Annotated[SinkContext, _service("sink_context")]
QueuesDep = Annotated[Queues, _service("queues")]
ClusterDep = Annotated[Cluster, _service("cluster")]
OpLogDep = Annotated[OpLog, _service("op_log")]
SealingDep = Annotated[Sealing, _service("sealing")]
TokensDep = Annotated[Tokens, _service("tokens")]
AuditDep = Annotated[Audit, _service("audit")]
QuotasDep = Annotated[Quotas, _service("quotas")]
WatchDep = Annotated[Watch, _service("watch")]
SharesDep = Annotated[Shares, _service("shares")]
FeedDep = Annotated[EventFeed, _service("feed")]
SessionsDep = Annotated[Sessions, _service("sessions")]
SendersDep = Annotated[Senders, _service("senders")]
RejectedDep = Annotated[RejectedRows, _service("rejected")]
ReplaysDep = Annotated[Replays, _service("replays")]
AmendmentsDep = Annotated[Amendments, _service("amendments")]
EraserDep = Annotated[Eraser, _service("eraser")]
OutlookDep = Annotated[PlatformOutlook, _service("outlook")]
HealthDep = Annotated[PlatformHealth, _service("health")]
PrivateTargetsDep = Annotated[Networks, _service("settings.api.private_targets")]
DecoderMbDep = Annotated[int, _service("settings.api.decoder_mb")]
TokenDaysDep = Annotated[float, _service("settings.api.token_days")]
LimitsDep = Annotated[LimitSettings, _service("settings.limits")]
QuerySettingsDep = Annotated[QuerySettings, _service("settings.query")]
SinkSettingsDep = Annotated[SinkSettings, _service("settings.sinks")]
KubernetesDep = Annotated[KubernetesSettings, _service("settings.k8s")]
SettingsDep = Annotated[Settings, _service("settings")]


async def _default_app(settings: SettingsDep) -> DefaultApp:
    return DefaultApp.of(settings)


DefaultAppDep = Annotated[DefaultApp, Depends(_default_app)]


async def _caller(connection: HTTPConnection, tokens: TokensDep) -> Caller:
    """Also checks that the caller may call this endpoint at all, and see the tenant and the table its path names."""
    return await caller_of(connection, tokens)


CallerDep = Annotated[Caller, Depends(_caller)]


async def _imports(caller: CallerDep, store: StoreDep, outlook: OutlookDep) -> VisibleImports:
    return VisibleImports(store, caller, outlook)


ImportsDep = Annotated[VisibleImports, Depends(_imports)]


async def _import(import_id: str, imports: ImportsDep) -> dict[str, Any]:
    return await asyncio.to_thread(imports.find, import_id)


# The document of the import that the path names, if the caller sees it.
ImportDep = Annotated[dict[str, Any], Depends(_import)]


class GuardedRoute(APIRoute):
    """An endpoint that only those may call whom it allows. The framework reads the body before it asks any dependency, so
    this comes before both; a body that is read is bounded."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        bounds = bounds_of(inspect.unwrap(self.endpoint))
        known = query_names(self.dependant)

        async def guarded(request: Request) -> Response:
            services: Services = request.app.state.services
            tenant = await refuse_caller(request, services.tokens, services.quotas)
            # Whoever looks at a public page may add what they like: a probe, a cache.
            if access_of(request) is not PUBLIC:
                refuse_unknown_parameters(request, known)
            with nullcontext() if tenant is None else services.quotas.requests.one_more(tenant):
                request = bounded(request, bounds, services.settings.api.lease_seconds)
                if self.body_field is not None:
                    # The framework would call a body that is refused while it is read one that cannot be parsed.
                    await request.body()
                return await handle(request)

        return guarded


async def refuse_caller(request: HTTPConnection, tokens: Tokens, quotas: Quotas) -> str | None:
    """Refuses callers who may not call the endpoint, and a tenant that asks more often than it may. Returns the tenant.

    An operator's requests are not counted. A WebSocket's endpoint calls this itself, because it refuses in its own way."""
    if access_of(request) is PUBLIC:
        return None
    caller = await caller_of(request, tokens)
    ASKING.set(caller.tenant or PLATFORM)
    if caller.tenant is not None:
        await quotas.prepare(caller.tenant)
        quotas.refuse_request(caller.tenant)
    return caller.tenant


def guarded_router(*, tags: list[str | Enum], route_class: type[GuardedRoute] = GuardedRoute, **more: Any) -> APIRouter:
    """A router whose endpoints only those may call whom the endpoint allows."""
    return _Router(tags=tags, route_class=route_class, **more)


class _Router(APIRouter):
    """Runs plain functions in the threads that tenants share (shares.py), not in the framework's own."""

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        if not inspect.iscoroutinefunction(endpoint):
            endpoint = _in_shared_threads(endpoint)
        super().add_api_route(path, endpoint, **more)


def _in_shared_threads(plain: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(plain)
    async def endpoint(**given: Any) -> Any:
        return await asyncio.to_thread(plain, **given)

    return same_access(endpoint, plain)
