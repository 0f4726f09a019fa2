"""Events on their way to subscribers: signed, in the order asked for, again until they arrive, past whoever is dead."""

import asyncio
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert, select

from millrace.model.errors import Clash, Exceeded, Invalid, Missing
from millrace.notify import queue, subscription_sender
from millrace.notify.notifier import Notifier
from millrace.notify.queue import EventQueue
from millrace.notify.retry import RetryPolicy
from millrace.notify.subscription import AS_THEY_COME, IN_ORDER
from millrace.notify.subscriptions import NewSubscription, Subscriptions
from millrace.outbound.addresses import parse_target
from millrace.outbound.http import post
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from millrace.store.tables import deliveries
from tests.support.hook_target import HANG, HookTarget, hook_target
from tests.support.processes import started
from tests.support.waiting import wait_until

LOOPBACK = (ip_network("127.0.0.0/8"),)
QUICK = RetryPolicy(first_pause=0.05, longest_pause=0.2, oldest=3600)
SOON = 20.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ControlStore]:
    made = new_store(f"sqlite:///{tmp_path / 'control.db'}")
    yield made
    made.close()


def new_store(url: str) -> ControlStore:
    made = ControlStore(url)
    with made.write() as connection:
        for name in ("acme", "other"):
            connection.execute(
                insert(t.tenants).values(name=name, folded_name=name, partition=0, agreement={}, revision=1)
            )
    return made


@pytest.fixture
def target() -> Iterator[HookTarget]:
    with hook_target() as made:
        yield made


def happen(store: ControlStore, *types: str, tenant: str = "acme", at: float | None = None) -> list[str]:
    """Events as the controller leaves them; their ids."""
    with store.write() as connection:
        last = connection.execute(select(t.events.c.number).order_by(t.events.c.number.desc())).scalar() or 0
        ids = [f"op_{tenant}_{last + number}.settle.0" for number in range(1, len(types) + 1)]
        for event_id, kind in zip(ids, types, strict=True):
            event = {"specversion": "1.0", "id": event_id, "type": f"millrace.{kind}", "subject": "x", "data": {"n": 1}}
            kept = int(at or time.time())
            row = {"id": event_id, "tenant": tenant, "event": event, "published": True, "kept_from": kept}
            connection.execute(insert(t.events).values(**row))
    return ids


def subscribe(store: ControlStore, url: str, name: str = "hook", *, tenant: str = "acme", **wanted: Any) -> str:
    fields = {"types": ["*"], "order": IN_ORDER, **wanted}
    return Subscriptions(store).add(tenant, NewSubscription(name, url, **fields))


def shown(store: ControlStore, name: str = "hook", tenant: str = "acme") -> dict[str, Any]:
    return Subscriptions(store).document(tenant, name)


@contextmanager
def notifying(
    store: ControlStore, pace: RetryPolicy = QUICK, allowed: Any = LOOPBACK, **more: Any
) -> Iterator[Notifier]:
    stopping, failures = threading.Event(), list[BaseException]()
    notifier = Notifier(store, allowed, pace, **more)

    def run() -> None:
        try:
            notifier.run(stopping)
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield notifier
    finally:
        stopping.set()
        notifier.wake()
        thread.join(20)
    assert not failures, failures
    assert not thread.is_alive()


def arrived(target: HookTarget, count: int) -> Callable[[], bool]:
    return lambda: len(target.received) >= count


def test_an_event_arrives_once_whole_and_signed(store: ControlStore, target: HookTarget) -> None:
    happen(store, "import.completed")
    secret = subscribe(store, target.url)
    (event_id,) = happen(store, "span.ended")
    with notifying(store):
        wait_until(lambda: shown(store)["delivered"] == 1, SOON, "the event to arrive")
    (received,) = target.received
    assert received.id == event_id, "only what happened after it subscribed"
    assert received.event["type"] == "millrace.span.ended"
    assert received.event["data"] == {"n": 1}
    assert received.headers["content-type"].startswith("application/cloudevents+json")
    assert received.headers[":path"] == "/hook?key=1"
    assert abs(int(received.headers["webhook-timestamp"]) - time.time()) < 60
    assert received.is_signed_with(secret)
    document = shown(store)
    assert document["last_delivered"]["id"] == event_id
    assert (document["lag"]["events"], document["last_error"]) == (0, None)


def test_only_wanted_events_of_the_own_tenant_arrive(store: ControlStore, target: HookTarget) -> None:
    subscribe(store, target.url, types=["span.*"])
    happen(store, "import.completed", "table.defined")
    happen(store, "span.ended", tenant="other")
    wanted = happen(store, "span.begun", "import.failed", "span.ended")
    with notifying(store):
        wait_until(arrived(target, 2), SOON, "the events to arrive")
        wait_until(lambda: shown(store)["lag"]["events"] == 0, SOON, "nothing to wait")
    assert target.ids == [wanted[0], wanted[2]]


def test_what_fails_is_tried_again_under_the_same_id_and_order_is_kept(store: ControlStore, target: HookTarget) -> None:
    target.answers = [500, 429, (302, {"Location": target.url}), 404]
    subscribe(store, target.url)
    ids = happen(store, *["import.completed"] * 4)
    with notifying(store):
        wait_until(lambda: shown(store)["delivered"] == 4, SOON, "all to arrive")
    assert target.ids == [ids[0]] * 5 + ids[1:]
    stamps = [int(each.headers["webhook-timestamp"]) for each in target.received]
    assert stamps == sorted(stamps)
    error = shown(store)["last_error"]
    assert (error["status"], error["event"], error["attempt"], error["given_up"]) == (404, ids[0], 4, False)


def test_redirects_are_not_followed(store: ControlStore, target: HookTarget) -> None:
    with hook_target() as elsewhere:
        target.always = (307, {"Location": elsewhere.url})
        subscribe(store, target.url)
        happen(store, "import.completed")
        with notifying(store):
            wait_until(arrived(target, 3), SOON, "several attempts")
        assert elsewhere.received == []
    assert "redirects are not followed" in shown(store)["last_error"]["message"]


def test_one_at_a_time_or_several_at_once(store: ControlStore, target: HookTarget) -> None:
    target.pause = 0.05
    subscribe(store, target.url, "strict", order=IN_ORDER)
    ids = happen(store, *["import.completed"] * 12)
    with notifying(store):
        wait_until(lambda: shown(store, "strict")["delivered"] == 12, SOON, "all to arrive")
    assert (target.most_at_once, target.ids) == (1, ids)
    Subscriptions(store).remove("acme", "strict")
    subscribe(store, target.url, "loose", order=AS_THEY_COME)
    ids = happen(store, *["import.completed"] * 40)
    with notifying(store):
        wait_until(lambda: shown(store, "loose")["delivered"] == 40, SOON, "all to arrive")
    assert 1 < target.most_at_once <= subscription_sender.AT_ONCE
    assert sorted(target.ids[12:]) == sorted(ids)


def test_as_they_come_does_not_wait_for_the_one_that_fails(store: ControlStore, target: HookTarget) -> None:
    target.answers = [503]
    subscribe(store, target.url, order=AS_THEY_COME)
    ids = happen(store, *["import.completed"] * 5)
    with notifying(store, RetryPolicy(first_pause=3600, longest_pause=3600)):
        wait_until(lambda: shown(store)["delivered"] == 4, SOON, "the others to arrive")
    document = shown(store)
    assert document["lag"]["events"] == 1
    assert document["last_error"]["status"] == 503
    assert sorted(set(target.ids)) == sorted(ids)


def test_a_dead_target_delays_nobody_else(
    store: ControlStore, target: HookTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_sender, "HEALTHY_CONNECTIONS", 4)
    monkeypatch.setattr(subscription_sender, "FAILING_CONNECTIONS", 2)

    async def impatient(*args: Any) -> Any:
        return await post(*args, seconds=0.3)

    with hook_target() as dead:
        dead.always = HANG
        for number in range(5):
            subscribe(store, dead.url, f"dead{number}", order=AS_THEY_COME)
        happen(store, *["import.completed"] * 20)
        with notifying(store, send=impatient):
            wait_until(lambda: all(shown(store, f"dead{n}")["last_error"] for n in range(5)), SOON, "failures")
            subscribe(store, target.url, "alive")
            ids = happen(store, *["span.ended"] * 50)
            wait_until(lambda: shown(store, "alive")["delivered"] == 50, SOON, "the living one to be served")
            wait_until(lambda: target.ids == ids, SOON, "the same events")


def test_a_silent_target_is_given_up_on_in_time(target: HookTarget) -> None:
    target.always = HANG

    async def attempt() -> None:
        with pytest.raises(Exception, match=r"did not answer within 0\.2 s"):
            await post(parse_target(target.url), {}, b"{}", LOOPBACK, 0.2)

    begun = time.monotonic()
    asyncio.run(attempt())
    assert time.monotonic() - begun < 30, "the target would hang for a minute"


def test_gone_switches_the_subscription_off_and_on_again_it_goes_on(store: ControlStore, target: HookTarget) -> None:
    target.answers = [204, 410]
    subscribe(store, target.url)
    ids = happen(store, *["import.completed"] * 3)
    with notifying(store):
        wait_until(lambda: not shown(store)["enabled"], SOON, "it to be switched off")
        assert target.ids == ids[:2]
        assert shown(store)["last_error"]["status"] == 410
        later = happen(store, "import.completed")
        assert shown(store)["lag"]["events"] == 3
        Subscriptions(store).change("acme", "hook", {"enabled": True})
        wait_until(lambda: shown(store)["delivered"] == 4, SOON, "the rest to arrive")
    assert target.ids == [ids[0], ids[1], ids[1], ids[2], *later]


def test_an_event_too_old_is_given_up_and_the_next_one_has_its_turn(store: ControlStore, target: HookTarget) -> None:
    target.answers = [500]
    subscribe(store, target.url)
    old = happen(store, "import.completed", at=time.time() - 7200)
    new = happen(store, "import.completed")
    with notifying(store):
        wait_until(lambda: shown(store)["delivered"] == 1, SOON, "the newer one to arrive")
    assert target.ids == old + new
    document = shown(store)
    assert (document["given_up"], document["lag"]["events"]) == (1, 0)
    assert document["last_error"]["given_up"] is True


def test_an_event_that_is_no_longer_kept_blocks_nothing(store: ControlStore, target: HookTarget) -> None:
    target.always = 500
    subscribe(store, target.url)
    gone = happen(store, "import.completed")
    with notifying(store):
        wait_until(arrived(target, 1), SOON, "an attempt")
        with store.write() as connection:
            connection.execute(delete(t.events).where(t.events.c.id == gone[0]))
        wait_until(lambda: shown(store)["given_up"] == 1, SOON, "it to be given up")
        target.always = 204
        new = happen(store, "import.completed")
        wait_until(lambda: shown(store)["delivered"] == 1, SOON, "the next one to arrive")
    assert target.ids[-1:] == new


def test_private_targets_are_refused_at_every_attempt(store: ControlStore, target: HookTarget) -> None:
    subscribe(store, target.url)
    happen(store, "import.completed")
    with notifying(store, allowed=()):
        wait_until(lambda: shown(store)["last_error"], SOON, "a refusal")
    assert shown(store)["last_error"]["code"] == "private_target"
    assert target.received == []


def test_a_name_is_resolved_once_per_attempt_and_the_judged_address_is_used(
    store: ControlStore, target: HookTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[str] = []
    port = target.url.split(":")[2].split("/")[0]

    look_up = socket.getaddrinfo

    def resolve(host: str, asked_port: Any, *more: Any, **named: Any) -> list[Any]:
        if host != "rebinding.example.org":
            return look_up(host, asked_port, *more, **named)
        looked_up.append(host)
        # An attacker's name: fine while it is judged, inside the network a moment later.
        address = "127.0.0.1" if looked_up.count(host) == 1 else "127.0.0.2"
        return [(2, 1, 6, "", (address, asked_port or 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    subscribe(store, f"http://rebinding.example.org:{port}/hook")
    happen(store, "import.completed")
    with notifying(store, allowed=(ip_network("127.0.0.1/32"),)):
        wait_until(lambda: shown(store)["delivered"] == 1, SOON, "the event to arrive")
    assert looked_up.count("rebinding.example.org") == 1
    assert target.received[0].headers["host"] == f"rebinding.example.org:{port}"


def test_a_rotated_secret_overlaps_with_the_old_one(store: ControlStore, target: HookTarget) -> None:
    old = subscribe(store, target.url)
    new = Subscriptions(store).rotate("acme", "hook", 3600)
    happen(store, "import.completed")
    with notifying(store):
        wait_until(lambda: shown(store)["delivered"] == 1, SOON, "the event to arrive")
        assert target.received[0].is_signed_with(old)
        assert target.received[0].is_signed_with(new)
        newest = Subscriptions(store).rotate("acme", "hook", 0)
        wait_until(lambda: shown(store)["old_secret_until"] is None, SOON, "the overlap to end")
        happen(store, "import.completed")
        wait_until(lambda: target.received[-1].is_signed_with(newest), SOON, "the new secret to be used")
    assert not target.received[-1].is_signed_with(old)
    assert not target.received[-1].is_signed_with(new)


def test_a_pause_loses_nothing_and_a_change_of_address_is_followed(store: ControlStore, target: HookTarget) -> None:
    with hook_target() as first:
        subscribe(store, first.url)
        with notifying(store):
            before = happen(store, "import.completed")
            wait_until(lambda: first.ids == before, SOON, "the first to arrive")
            Subscriptions(store).change("acme", "hook", {"enabled": False, "url": target.url})
            during = happen(store, *["import.completed"] * 3)
            Subscriptions(store).change("acme", "hook", {"enabled": True})
            wait_until(lambda: target.ids == during, SOON, "the others to arrive at the new address")
        assert first.ids == before


def test_one_that_catches_up_does_not_make_others_hear_twice(store: ControlStore, target: HookTarget) -> None:
    with hook_target() as late:
        subscribe(store, target.url, "prompt")
        subscribe(store, late.url, "late", enabled=False)
        ids = happen(store, *["import.completed"] * 5)
        with notifying(store):
            wait_until(lambda: shown(store, "prompt")["delivered"] == 5, SOON, "the first to hear all")
        Subscriptions(store).change("acme", "late", {"enabled": True})
        more = happen(store, "import.completed")
        with notifying(store):
            wait_until(lambda: shown(store, "late")["delivered"] == 6, SOON, "the other to catch up")
            wait_until(lambda: shown(store, "prompt")["lag"]["events"] == 0, SOON, "nothing to wait")
        assert late.ids == target.ids == ids + more


def test_the_queue_is_bounded_and_nothing_is_lost_by_that(
    store: ControlStore, target: HookTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millrace.notify.notifier.WINDOW", 10)
    monkeypatch.setattr(queue, "PAGE", 7)
    target.always = 503
    subscribe(store, target.url)
    ids = happen(store, *["import.completed"] * 60)

    def queued() -> int:
        with store.read() as connection:
            return len(connection.execute(select(deliveries.c.number)).all())

    with notifying(store):
        wait_until(arrived(target, 3), SOON, "several attempts")
        assert 10 <= queued() < 10 + 7
        assert shown(store)["lag"]["events"] == 60
        target.always = 204
        wait_until(lambda: shown(store)["delivered"] == 60, SOON, "all to arrive")
    assert list(dict.fromkeys(target.ids)) == ids


def test_what_is_not_recorded_is_delivered_again_after_a_kill(tmp_path: Path, target: HookTarget) -> None:
    """Killed while an event is on its way: it and all behind it arrive after the restart, in order, under their ids."""
    url = f"sqlite:///{tmp_path / 'control.db'}"
    store = new_store(url)
    secret = subscribe(store, target.url)
    ids = happen(store, *["import.completed"] * 6)
    target.answers = [204, 204, HANG]
    code = (
        "import sys, threading; from ipaddress import ip_network\n"
        "from millrace.notify.notifier import Notifier; from millrace.store.engine import ControlStore\n"
        "Notifier(ControlStore(sys.argv[1]), (ip_network('127.0.0.0/8'),)).run(threading.Event())\n"
    )
    with started([sys.executable, "-c", code, url], cwd=Path(__file__).parents[2]) as process:
        wait_until(arrived(target, 3), SOON, "the third event to be on its way")
        process.kill()
    assert shown(store)["delivered"] == 2
    with notifying(store):
        wait_until(lambda: shown(store)["delivered"] == 6, SOON, "the rest to arrive")
    assert target.ids == [*ids[:3], *ids[2:]]
    assert all(each.is_signed_with(secret) for each in target.received)
    store.close()


def test_a_removed_subscription_hears_nothing_more(store: ControlStore, target: HookTarget) -> None:
    subscribe(store, target.url)
    target.always = 500
    (first, *_) = happen(store, *["import.completed"] * 3)
    with notifying(store, RetryPolicy(first_pause=3600)):
        wait_until(lambda: shown(store)["last_error"], SOON, "an attempt")
        Subscriptions(store).remove("acme", "hook")
        subscribe(store, target.url, "next", types=["span.*"])
        target.always = 204
        ids = happen(store, "import.completed", "span.ended")
        wait_until(lambda: shown(store, "next")["delivered"] == 1, SOON, "the next one to be served")
    assert target.ids == [first, ids[1]]
    with store.read() as connection:
        assert connection.execute(select(deliveries)).all() == []
    with pytest.raises(Missing):
        shown(store)


def test_subscriptions_are_checked_and_bounded(store: ControlStore) -> None:
    subscribe(store, "https://example.org")
    with pytest.raises(Clash):
        subscribe(store, "https://example.org")
    with pytest.raises(Invalid):
        subscribe(store, "https://example.org", "../evil")
    with pytest.raises(Missing):
        subscribe(store, "https://example.org", tenant="nobody")
    for number in range(19):
        subscribe(store, "https://example.org", f"more{number}")
    one_more = NewSubscription("one-too-many", "https://example.org", types=["*"], order=IN_ORDER)
    with pytest.raises(Exceeded, match="20"):
        Subscriptions(store, 20).add("acme", one_more)
    assert "whsec_" not in json.dumps(Subscriptions(store).documents("acme"))


def test_the_queue_works_on_postgresql_too(postgres_dsn: str, target: HookTarget) -> None:
    store = new_store(postgres_dsn.replace("postgresql://", "postgresql+psycopg://"))
    target.answers = [500]
    subscribe(store, target.url, types=["import.*"])
    ids = happen(store, "import.completed", "span.ended", "import.failed")
    with notifying(store):
        wait_until(lambda: shown(store)["delivered"] == 2, SOON, "both to arrive")
    assert target.ids == [ids[0], ids[0], ids[2]]
    assert EventQueue(store).newest(0) == {"acme": 3}
    store.close()
