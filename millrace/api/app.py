"""The server on one screen: lifespan, routes, problems."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from pkgutil import iter_modules

from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millrace.api import routes
from millrace.api.deps import Services
from millrace.api.docs_page import docs_page
from millrace.api.problems import add_problems
from millrace.auth.access import access_table, public
from millrace.auth.audit import Audited
from millrace.observe import seconds


def make_app(running: Callable[[], AbstractAsyncContextManager[Services]]) -> FastAPI:
    """`running` yields the services for as long as the application is up."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with running() as services:
            app.state.services = services
            yield

    app = FastAPI(title="Millrace", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    for page in app.routes:
        public(page.endpoint)  # type: ignore[attr-defined]

    @app.get("/docs", include_in_schema=False)
    @public
    def docs() -> HTMLResponse:
        return docs_page(app)

    add_problems(app)
    for module in iter_modules(routes.__path__, f"{routes.__name__}."):
        app.include_router(import_module(module.name).router)
    # An endpoint that declares no access stops the server here.
    access_table(app.routes)
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
