"""The REST API without Kafka and Spark: real routes and rules on a store of its own; ops are applied where they come.

For what needs no rows: spans, webhooks, events. `server.apply` puts any op through the controller's rules."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvicorn
from fastapi import FastAPI

from millrace.api.following.feed import EventFeed
from millrace.api.op_log import raise_refusal
from millrace.api.problems import add_problems
from millrace.api.routes import declarations, observing, spans, subscriptions
from millrace.api.sealing import Sealing
from millrace.api.serving import serving_options
from millrace.api.shares import Shares
from millrace.api.watch import Watch
from millrace.auth.quotas import Quotas
from millrace.auth.tokens import Tokens
from millrace.control.controller import opened_append
from millrace.control.entities import load, save
from millrace.control.outbox import Kept
from millrace.control.state import StoreDefinition
from millrace.control.step import step
from millrace.control.working_set import WorkingSet
from millrace.exchange.client_file import ClientFile, write_client_file
from millrace.exchange.home import Home
from millrace.exchange.mailboxes import open_exchange
from millrace.model.names import new_id
from millrace.model.ops import Applied, Op
from millrace.model.ops.results import Result
from millrace.model.ops.rows import Append
from millrace.notify.notifier import Notifier
from millrace.notify.retry import RetryPolicy
from millrace.settings import ApiSettings, LimitSettings, Settings
from millrace.sink.context import SinkContext
from millrace.store.engine import ControlStore
from tests.support.waiting import wait_until

TOKEN = "mr_small"


class SmallPlatform:
    """A table log that applies ops where they come, and the services that need no more than a store."""

    feed: EventFeed
    limits = LimitSettings()

    def __init__(self, root: Path, private_targets: tuple[str, ...]) -> None:
        api = {**Settings().api.model_dump(), "private_targets": private_targets}
        self.settings = Settings(home=root, api=ApiSettings.model_validate(api), limits=self.limits)
        self.home, self.exchange = Home(root), open_exchange(root)
        self.store = ControlStore(f"sqlite:///{root / 'control.db'}")
        self.tokens = Tokens(self.store, self.limits.tokens)
        self.tokens.keep(TOKEN, "admin", None)
        self.notifier = Notifier(self.store, self.settings.api.private_targets, RetryPolicy(first_pause=0.05))
        self.quotas = Quotas(self.store, self.limits)
        self.sealing = Sealing(self.exchange, self.settings.kms, self.quotas)
        self.sink_context = SinkContext.of(self.settings, self.exchange.places)
        self.private_targets = self.settings.api.private_targets
        self.listeners: list[Callable[[list[Applied]], None]] = []

    def listen(self, listener: Callable[[list[Applied]], None]) -> None:
        self.listeners.append(listener)

    async def submit(self, op: Op[Any]) -> Applied:
        return await asyncio.to_thread(self.apply, op)

    async def applied(self, op: Op[Any], *, wait: float | None = None) -> Result:
        return raise_refusal(await self.submit(op)).result

    def apply(self, op: Op[Any]) -> Applied:
        op = op if op.id else op.asked_as(new_id("op"))
        if isinstance(op, Append) and op.log_key:
            op = opened_append(op, self.exchange.log_keys)
        at_us, kept = time.time_ns() // 1000, Kept()
        with self.store.write() as connection:
            working = WorkingSet(connection)
            before = load(working, op)
            outcome = step(before, op, at_us, 0)
            save(working, before, outcome.state, at_us)
            working.write()
            for number, (cause, effect) in enumerate(outcome.effects):
                if isinstance(effect, StoreDefinition):
                    self.exchange.definitions.publish(effect.definition)
                else:
                    kept.keep(effect, cause, number, at_us)
            kept.write(connection)
        self.notifier.wake()
        for listener in self.listeners:
            listener(list(outcome.answers))
        return outcome.answers[0]


class SmallServer:
    def __init__(self, platform: SmallPlatform, url: str, sockets: Sequence[Any] = ()) -> None:
        self.platform = platform
        self.url = url
        self.sockets = sockets

    def apply(self, op: Op[Any]) -> Result:
        return raise_refusal(self.platform.apply(op)).result


@contextmanager
def small_server(root: Path, *private_targets: str) -> Iterator[SmallServer]:
    root.mkdir(parents=True, exist_ok=True)
    platform, stopping = SmallPlatform(root, private_targets), threading.Event()
    notifying = threading.Thread(target=platform.notifier.run, args=(stopping,))
    notifying.start()
    try:
        app = _app(platform)
        with serving(app, root) as url:
            yield SmallServer(platform, url, app.state.sockets)
    finally:
        stopping.set()
        notifying.join(20)
        platform.store.close()


@contextmanager
def serving(app: FastAPI, home: Path) -> Iterator[str]:
    """The application on a port of its own, as the environment says; commands find it by the home's client.json."""
    settings = Settings().api
    options = {**serving_options(settings), "log_level": "warning", "timeout_graceful_shutdown": 1}
    server = uvicorn.Server(uvicorn.Config(app, port=0, **options))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started, 20, "the server to start")
        app.state.sockets = server.servers[0].sockets
        scheme = "http" if settings.tls_cert is None else "https"
        url = f"{scheme}://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        write_client_file(home, ClientFile(url, TOKEN, str(settings.tls_cert) if settings.tls_cert else None))
        yield url
    finally:
        server.should_exit = True
        thread.join(20)


def _app(platform: SmallPlatform) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        watch = Watch()
        platform.feed = feed = EventFeed(platform.store, platform.tokens.is_valid, platform.settings.limits.followers)
        platform.listen(watch.on_applied)
        platform.listen(feed.on_applied)
        shares = Shares(platform.settings.limits)
        shares.use()
        app.state.services = SimpleNamespace(**vars(platform), op_log=platform, watch=watch, shares=shares, health=None)
        yield
        feed.close()
        shares.close()

    app = FastAPI(lifespan=lifespan)
    add_problems(app)
    for routes in (declarations, spans, subscriptions, observing):
        app.include_router(routes.router)
    return app
