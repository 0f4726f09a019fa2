"""The whole REST API in this process, without Kafka and Spark: every route, its middleware and the rules of the log.

What would put bytes into Kafka fails; what is asked before that is answered as always."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from starlette.routing import BaseRoute
from starlette.testclient import TestClient

from millrace.api.app import make_app
from millrace.model.ops import Applied
from tests.support.small_server import TOKEN, SmallPlatform

__all__ = ["TOKEN", "AppPlatform", "endpoints", "whole_app"]


class AppPlatform(SmallPlatform):
    """What the application asks of a platform besides what routes do."""

    def listen(self, listener: Callable[[list[Applied]], None]) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def work(self, name: str, work: Callable[[threading.Event], None]) -> None: ...


@contextmanager
def whole_app(root: Path, kind: type[AppPlatform] = AppPlatform) -> Iterator[tuple[AppPlatform, TestClient]]:
    root.mkdir(parents=True, exist_ok=True)
    platform = kind(root, ())
    try:
        with TestClient(make_app(platform), raise_server_exceptions=False) as client:  # type: ignore[arg-type]
            yield platform, client
    finally:
        platform.store.close()


def endpoints(routes: list[BaseRoute]) -> Iterator[str]:
    """Each route as METHOD PATH, those of included routers too."""
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is not None:
            yield from endpoints(included.routes)
            continue
        for method in getattr(route, "methods", None) or ("WS",):
            yield f"{method} {route.path}"  # type: ignore[attr-defined]
