"""The server on one screen: lifespan, routes, problems."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import Depends, FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millrace.api.deps import within_quota
from millrace.api.jobs.metering import keep_measured
from millrace.api.jobs.replaying import Replays
from millrace.api.jobs.retention import keep_retention
from millrace.api.platform import Platform
from millrace.api.problems import add_problems
from millrace.api.routes import (
    agreements,
    apps,
    asking,
    auditing,
    declarations,
    diffing,
    erasing,
    errors,
    imports,
    keys,
    metering,
    mysimbdp,
    observing,
    quality,
    rows,
    sinks,
    spans,
    subscriptions,
    tokens,
    tus,
    whatif,
)
from millrace.api.rows.senders import Streams
from millrace.api.uploads.sessions import Sessions
from millrace.api.watch import Watch
from millrace.auth.audit import Audit, Audited
from millrace.observe import seconds


def make_app(platform: Platform) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.platform = platform
        app.state.audit = Audit(platform.store)
        app.state.watch = Watch()
        app.state.sessions = Sessions(platform)
        app.state.streams = Streams(platform)
        platform.listen(app.state.watch.on_applied)
        replays = Replays(platform)
        platform.listen(replays.on_applied)
        platform.start()
        platform.work("replays", replays.run)
        platform.work("metering", partial(keep_measured, platform.store, platform.exchange.tenant_files))
        retention = partial(
            keep_retention, platform.store, platform.exchange, platform.sink_context, platform.settings.kms
        )
        platform.work("retention", retention)
        yield
        platform.stop()

    app = FastAPI(title="Millrace", version="1", lifespan=lifespan)
    add_problems(app)
    for routes in (
        agreements,
        declarations,
        diffing,
        imports,
        quality,
        rows,
        errors,
        tus,
        sinks,
        spans,
        subscriptions,
        observing,
        asking,
        whatif,
        mysimbdp,
        apps,
        tokens,
        auditing,
        metering,
        erasing,
        keys,
    ):
        app.include_router(routes.router, dependencies=[Depends(within_quota)])

    app.add_middleware(Audited)
    app.add_middleware(Measure)
    return app


class Measure:
    """Seconds per request, without touching the bodies that pass."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        begun = time.perf_counter()

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                seconds("request", time.perf_counter() - begun, method=scope["method"], status=str(message["status"]))
            await send(message)

        await self._app(scope, receive, noting)
