"""Many who follow events, one who is slow, and what each of them hears, against a server that listens."""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import event

from millrace.api.following import feed, follower
from millrace.client import Millrace
from millrace.model.ops.spans import AbortSpan, BeginSpan
from millrace.model.ops.tenants import DefineTenant
from tests.support.followers import EventFollower, read_all
from tests.support.small_server import TOKEN, SmallServer, small_server
from tests.support.waiting import wait_until

Follow = Callable[..., EventFollower]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SmallServer]:
    with small_server(tmp_path / "home") as started:
        for tenant in ("acme", "other"):
            started.apply(DefineTenant(tenant, agreement={}))
        yield started


@pytest.fixture
def follow(server: SmallServer) -> Iterator[Follow]:
    with ExitStack() as stack:

        def connect(token: str = TOKEN, after: int = 0, **more: object) -> EventFollower:
            made = EventFollower(server.url, token, after, **more)  # type: ignore[arg-type]
            stack.callback(made.close)
            return made

        yield connect


@contextmanager
def counted_queries(server: SmallServer, words: str) -> Iterator[list[str]]:
    """The statements with these words that the server runs. The test's own thread applies the ops."""
    asked: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        if words in statement and threading.current_thread() is not threading.main_thread():
            asked.append(statement)

    engine = server.platform.store._engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(engine, "before_cursor_execute", note)


def begin(server: SmallServer, *names: str, tenant: str = "acme") -> None:
    for name in names:
        server.apply(BeginSpan(tenant, name))


def subjects(made: EventFollower) -> list[str]:
    return [heard["subject"] for _, heard in made.events if heard["type"].startswith("millrace.span.")]


def test_more_followers_ask_the_store_no_more_often(server: SmallServer, follow: Follow) -> None:
    begin(server, "first")
    followers = [follow() for _ in range(60)]
    read_all(followers, b'"first"', 60)
    names = [f"s{number}" for number in range(40)]
    with counted_queries(server, "FROM events") as asked:
        begin(server, *names, "last")
        read_all(followers, b'"last"', 60)
    assert all(subjects(one) == ["first", *names, "last"] for one in followers)
    # One reader asks at most once for each op, and once a second while nothing happens. Sixty would ask 2,400 times.
    assert len(asked) < 120


def test_each_follower_hears_what_it_may(server: SmallServer, follow: Follow) -> None:
    token = server.platform.tokens.make("a", "acme", "viewer")
    own, everything, one_of_them = follow(token), follow(), follow(tenant="other")
    begin(server, "secret", tenant="other")
    begin(server, "mine")
    own.read_until(b'"mine"')
    everything.read_until(b'"mine"')
    one_of_them.read_until(b'"secret"')
    assert subjects(own) == ["mine"]
    assert subjects(everything) == ["secret", "mine"]
    assert subjects(one_of_them) == ["secret"]
    foreign = follow(token, tenant="other")
    foreign.read_until(b"no_tenant")
    assert foreign.status == 404


def test_a_slow_follower_is_cut_off_and_goes_on_without_loss(
    server: SmallServer, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (feed, follower):
        monkeypatch.setattr(module, "MOST_WAITING", 20)
    server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    slow, quick = follow(slow=True), follow()
    slow.read_until(b"\r\n\r\n")
    for number in range(200):
        begin(server, f"n{number:03d}")
        server.apply(AbortSpan("acme", f"n{number:03d}", reason="x" * 500))
        quick.read_until(f'"member": "n{number:03d}"'.encode())
    begin(server, "last")
    quick.read_until(b'"last"')
    slow.read_to_the_end()
    assert b": cut off: " in slow.received[-300:]
    assert "last" not in subjects(slow)
    resumed = follow(after=slow.events[-1][0])
    resumed.read_until(b'"last"')
    assert slow.events + resumed.events == quick.events


def test_the_past_is_sent_page_by_page(server: SmallServer, follow: Follow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "PAGE", 7)
    monkeypatch.setattr(feed, "MOST_WAITING", 5)
    names = [f"n{number}" for number in range(40)]
    begin(server, *names)
    late = follow()
    late.read_until(b'"n39"')
    begin(server, "now")
    late.read_until(b'"now"')
    assert subjects(late) == [*names, "now"]


def test_a_tenant_has_only_so_many_followers(server: SmallServer, follow: Follow) -> None:
    server.platform.feed._slots.limit = replace(server.platform.feed._slots.limit, of_tenant=3)
    token = server.platform.tokens.make("a", "acme", "viewer")
    begin(server, "one")
    followers = [follow(token) for _ in range(3)]
    read_all(followers, b'"one"', 20)
    refused = follow(token)
    refused.read_until(b"over_quota")
    assert refused.status == 429
    assert b"retry-after:" in refused.received.lower()
    other = follow(server.platform.tokens.make("b", "other", "viewer"))
    other.read_until(b"\r\n\r\n")
    assert other.status == 200


def test_who_waits_for_a_span_looks_twice_whatever_else_happens(server: SmallServer) -> None:
    begin(server, "awaited")
    with Millrace(server.url, TOKEN) as client, counted_queries(server, "FROM spans") as asked:
        ask = partial(client.json, "GET", "/v1/tenants/acme/spans/awaited", params={"wait": 20})
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(ask)
            wait_until(lambda: len(asked) == 1, 20, "the first look")
            begin(server, *(f"s{number}" for number in range(40)))
            server.apply(AbortSpan("acme", "awaited"))
            assert waiting.result(20)["state"] == "aborted"
    assert len(asked) == 2


def test_the_stream_ends_when_its_token_does(server: SmallServer, follow: Follow) -> None:
    tokens = server.platform.tokens
    revoked, kept = follow(tokens.make("a", "acme", "viewer")), follow(tokens.make("b", "acme", "viewer"))
    begin(server, "one")
    read_all([revoked, kept], b'"one"', 20)
    tokens.revoke("a", "acme")
    revoked.read_to_the_end()
    assert b": the token is no longer valid" in revoked.received
    begin(server, "two")
    kept.read_until(b'"two"')
    assert subjects(revoked) == ["one"]
