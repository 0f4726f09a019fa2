"""Spans, webhooks and events over REST and by command: what a caller is told, and what it may not do."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.client import Millrace, Problem
from millrace.client.spans import SpanClient
from millrace.declare.table import parse_table
from millrace.model.errors import Clash, Invalid
from millrace.model.imports import Counts
from millrace.model.names import new_id
from millrace.model.ops.imports import BeginImport, EndImport, SettleImport
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from tests.support.hook_target import HookTarget, hook_target
from tests.support.platform import record
from tests.support.small_server import TOKEN, SmallServer, small_server
from tests.support.waiting import wait_until

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SmallServer]:
    with small_server(tmp_path / "home", "127.0.0.0/8") as started:
        started.apply(DefineTenant("acme", agreement={}))
        declaration = parse_table(record("notes", ("id", "long"), key=("id",)))
        started.apply(DefineTable("acme", "notes", declaration=declaration.to_dict()))
        yield started


@pytest.fixture
def client(server: SmallServer) -> Iterator[Millrace]:
    with Millrace(server.url, TOKEN) as connection:
        yield connection


@pytest.fixture
def spans(client: Millrace) -> SpanClient:
    return client.spans


@pytest.fixture
def target() -> Iterator[HookTarget]:
    with hook_target() as made:
        yield made


@pytest.fixture
def cli(server: SmallServer) -> Cli:
    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        argv = [sys.executable, "-m", "millrace.cli.main", *words]
        environ = {"MILLRACE_HOME": str(server.platform.home.root), "PATH": ""}
        return subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60, check=False)

    return run


def begin_import(server: SmallServer, span: str) -> str:
    return str(server.apply(BeginImport("acme", "notes", id=new_id("imp"), span=span)).import_id)


def settle(server: SmallServer, import_id: str, **counts: int) -> None:
    """As the accountant would: every row of it is durable."""
    server.apply(EndImport("acme", import_id, chunks=1, rows=counts["read"], bytes=10))
    folded = Counts(**{"chunks": 1, **counts})
    server.apply(SettleImport("acme", import_id, counts=folded, durable={"delta": 1}, failure=None))


def events(client: Millrace) -> list[tuple[str, str]]:
    return [
        (event["type"].removeprefix("millrace."), event["subject"]) for event in client.events.page(limit=1000)["items"]
    ]


def refused(ask: Callable[[], Any]) -> tuple[int, str]:
    with pytest.raises(Problem) as raised:
        ask()
    return raised.value.status, raised.value.code


def test_a_span_ends_once_after_everything_in_it(server: SmallServer, client: Millrace, spans: SpanClient) -> None:
    begun = spans.begin("acme", "nightly", lease_seconds=900)
    assert (begun["state"], begun["lease_seconds"], begun["parent"]) == ("open", 900, None)
    assert spans.begin("acme", "nightly")["begun_at"] == begun["begun_at"], "begun twice is begun once"
    first, second = begin_import(server, "nightly"), begin_import(server, "nightly")
    settle(server, first, read=5, accepted=4, rejected=1)
    assert spans.end("acme", "nightly")["state"] == "ending"
    with pytest.raises(Clash, match="'nightly' is ending"):
        begin_import(server, "nightly")
    settle(server, second, read=2, accepted=2)
    ended = spans.show("acme", "nightly")
    assert (ended["state"], ended["imports"], ended["open_members"]) == ("ended", 2, 0)
    assert ended["rows"] == {"read": 7, "accepted": 6, "rejected": 1, "ignored": 0}
    assert ended["ended_at"] is not None
    told = [kind for kind, subject in events(client) if subject == "nightly"]
    assert told == ["span.begun", "span.ended"]
    assert spans.end("acme", "nightly")["state"] == "ended", "ended twice is ended once"
    with pytest.raises(Clash, match="'nightly' is ended"):
        begin_import(server, "nightly")
    assert spans.show("acme", "nightly") == ended, "what comes late changes nothing"
    assert [kind for kind, subject in events(client) if subject == "nightly"] == told


def test_nested_spans_open_what_is_above_them_and_end_upwards(
    server: SmallServer, client: Millrace, spans: SpanClient
) -> None:
    spans.begin("acme", "a/b/c")
    assert [span["name"] for span in spans.list("acme", prefix="a")] == ["a", "a/b", "a/b/c"]
    settle(server, begin_import(server, "a/b/c"), read=1, accepted=1)
    spans.end("acme", "a")
    spans.end("acme", "a/b/c")
    assert {span["name"]: span["state"] for span in spans.list("acme")} == {
        "a": "ending",
        "a/b": "open",
        "a/b/c": "ended",
    }
    spans.end("acme", "a/b")
    assert {span["state"] for span in spans.list("acme")} == {"ended"}
    assert spans.show("acme", "a")["rows"]["accepted"] == 1
    ended = [subject for kind, subject in events(client) if kind == "span.ended"]
    assert ended == ["a/b/c", "a/b", "a"]


def test_a_failed_member_aborts_at_once_and_is_named(server: SmallServer, client: Millrace, spans: SpanClient) -> None:
    spans.begin("acme", "night/part")
    good, bad = begin_import(server, "night/part"), begin_import(server, "night/part")
    settle(server, bad, read=3, accepted=0, rejected=3)
    for name in ("night/part", "night"):
        aborted = spans.show("acme", name)
        assert (aborted["state"], aborted["error"]["member"]) == ("aborted", bad)
    settle(server, good, read=1, accepted=1)
    assert spans.end("acme", "night/part")["state"] == "aborted"
    kinds = [kind for kind, subject in events(client) if subject == "night/part"]
    assert kinds == ["span.begun", "span.aborted"]


def test_abort_names_its_reason(spans: SpanClient) -> None:
    spans.begin("acme", "given/up")
    aborted = spans.abort("acme", "given/up", reason="The source is late.")
    assert (aborted["state"], aborted["error"]["message"]) == ("aborted", "The source is late.")
    assert spans.show("acme", "given")["state"] == "aborted"
    assert refused(lambda: spans.begin("acme", "given/up")) == (409, "span_over")
    assert refused(lambda: spans.touch("acme", "given/up")) == (409, "span_over")


def test_waiting_ends_with_the_span(server: SmallServer, spans: SpanClient) -> None:
    spans.begin("acme", "awaited")
    import_id = begin_import(server, "awaited")
    spans.end("acme", "awaited")
    begun = time.monotonic()
    assert spans.show("acme", "awaited", wait=0.3)["state"] == "ending", "time was up first"
    assert time.monotonic() - begun >= 0.3
    waiting = threading.Thread(target=lambda: settle(server, import_id, read=1, accepted=1))
    waiting.start()
    assert spans.wait("acme", "awaited", timeout=20)["state"] == "ended"
    waiting.join(20)


def test_touching_renews_the_lease_of_all_levels_and_looking_does_not(spans: SpanClient) -> None:
    spans.begin("acme", "long/run")
    before = {span["name"]: span["expires_at"] for span in spans.list("acme")}
    spans.show("acme", "long/run")
    assert {span["name"]: span["expires_at"] for span in spans.list("acme")} == before
    spans.touch("acme", "long/run")
    after = {span["name"]: span["expires_at"] for span in spans.list("acme")}
    assert all(after[name] > before[name] for name in ("long", "long/run"))


@pytest.mark.parametrize("name", ["a//b", "a/%2E%2E/b", "_x", "a b", "a/b/c/d/e/f/g/h/i", "x" * 64, "ä", "%2e%2e"])
def test_bad_names_are_refused(client: Millrace, name: str) -> None:
    status, code = refused(lambda: client.json("POST", f"/v1/tenants/acme/spans/{name}", json={}))
    assert (status, code) in ((422, "bad_name"), (404, "missing"), (404, "no_tenant"), (405, "refused"))
    assert client.spans.list("acme") == []


@pytest.mark.parametrize("name", ["end", "a/end", "abort/x", "a/touch"])
def test_words_of_routes_are_no_names(client: Millrace, spans: SpanClient, name: str) -> None:
    spans.begin("acme", "a")
    with pytest.raises(Invalid):
        spans.begin("acme", name)
    assert refused(lambda: client.json("POST", f"/v1/tenants/acme/spans/x/{name}/y", json={}))[0] == 422
    assert spans.show("acme", "a")["state"] == "open"


def test_spans_of_others_do_not_exist(server: SmallServer, client: Millrace) -> None:
    server.apply(DefineTenant("other", agreement={}))
    client.spans.begin("acme", "mine")
    with Millrace(server.url, server.platform.tokens.make("o", "other")) as stranger:
        assert refused(lambda: stranger.spans.show("acme", "mine")) == (404, "no_tenant")
        assert refused(lambda: stranger.spans.begin("acme", "mine")) == (404, "no_tenant")
        assert refused(lambda: stranger.spans.abort("acme", "mine")) == (404, "no_tenant")
        assert refused(lambda: stranger.webhooks.list("acme")) == (404, "no_tenant")
        assert refused(lambda: stranger.spans.show("other", "mine")) == (404, "no_span")
        assert refused(lambda: stranger.json("GET", "/v1/events?tenant=acme")) == (404, "no_tenant")


def test_spans_are_listed_by_state_and_prefix(spans: SpanClient) -> None:
    for name in ("a", "a/b", "ab", "c"):
        spans.begin("acme", name)
    spans.abort("acme", "c")
    assert [span["name"] for span in spans.list("acme", state="aborted")] == ["c"]
    assert sorted(span["name"] for span in spans.list("acme", prefix="a")) == ["a", "a/b"]
    assert len(spans.list("acme", limit=2)) == 2


def test_a_webhook_hears_of_an_end_signed(server: SmallServer, client: Millrace, target: HookTarget) -> None:
    hooks, spans = client.webhooks, client.spans
    secret = hooks.add("acme", "ops", target.url, types=["span.ended"])["secret"]
    spans.begin("acme", "told")
    settle(server, begin_import(server, "told"), read=9, accepted=9)
    spans.end("acme", "told")
    wait_until(lambda: target.received, 20, "the webhook")
    (received,) = target.received
    assert received.is_signed_with(secret)
    assert (received.event["type"], received.event["subject"]) == ("millrace.span.ended", "told")
    assert received.event["data"]["rows"]["accepted"] == 9
    assert received.event["data"]["interval"]["begun_us"] <= received.event["data"]["interval"]["ended_us"]
    wait_until(lambda: hooks.show("acme", "ops")["delivered"] == 1, 20, "the delivery to be recorded")
    shown = hooks.show("acme", "ops")
    assert shown["last_delivered"]["id"] == received.id
    assert "secret" not in shown


def test_webhooks_are_changed_tested_rotated_and_removed(client: Millrace, target: HookTarget) -> None:
    hooks = client.webhooks
    first = hooks.add("acme", "ops", target.url, order="as_they_come", enabled=False)["secret"]
    assert hooks.test("acme", "ops") == {
        "delivered": True,
        "status": 204,
        "error": None,
        "seconds": pytest.approx(0, abs=5),
    }
    assert target.received[-1].event["type"] == "millrace.webhook.test"
    assert target.received[-1].is_signed_with(first)
    second = hooks.rotate("acme", "ops", overlap_seconds=0)["secret"]
    target.answers = [500]
    tried = hooks.test("acme", "ops")
    assert (tried["delivered"], tried["status"], tried["error"]["message"]) == (False, 500, "It answered 500.")
    assert target.received[-1].is_signed_with(second)
    assert not target.received[-1].is_signed_with(first)
    changed = hooks.change("acme", "ops", types=["import.*", "span.*"], order="in_order")
    assert (changed["types"], changed["order"], changed["enabled"]) == (["import.*", "span.*"], "in_order", False)
    hooks.remove("acme", "ops")
    assert hooks.list("acme") == []
    assert refused(lambda: hooks.show("acme", "ops")) == (404, "no_subscription")


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"url": "http://10.0.0.1/"}, "private_target"),
        ({"url": "http://169.254.169.254/latest/meta-data"}, "private_target"),
        ({"url": "http://[::ffff:10.0.0.1]/"}, "private_target"),
        ({"url": "http://2130706433/"}, "bad_url"),
        ({"url": "ftp://example.org/"}, "bad_url"),
        ({"types": ["Nothing!"]}, "bad_types"),
        ({"order": "sorted"}, "bad_order"),
        ({"name": "../x"}, "bad_name"),
    ],
)
def test_webhooks_that_cannot_work_are_refused(client: Millrace, wanted: dict[str, Any], code: str) -> None:
    fields = {"name": "ops", "url": "http://127.0.0.1:9/", **wanted}
    asked = lambda: client.json("POST", "/v1/tenants/acme/subscriptions", json=fields)  # noqa: E731
    assert refused(asked) == (422, code)
    assert client.webhooks.list("acme") == []


def test_server_sent_events_are_resumed_where_they_stopped(server: SmallServer, client: Millrace) -> None:
    spans = client.spans
    spans.begin("acme", "one")
    heard = []
    for number, event in client.server_sent("/v1/events/stream", 0):
        heard.append((number, event["id"]))
        if event["subject"] == "one":
            break
    spans.begin("acme", "two")
    spans.begin("acme", "three")
    resumed = []
    for number, event in client.server_sent("/v1/events/stream?tenant=acme", heard[-1][0]):
        resumed.append((number, event["subject"]))
        if event["subject"] == "three":
            break
    assert [subject for _, subject in resumed] == ["two", "three"]
    assert [number for number, _ in heard + resumed] == sorted(number for number, _ in heard + resumed)


def test_the_commands_of_a_span(server: SmallServer, cli: Cli) -> None:
    assert "open" in cli("span", "begin", "nightly-2026-11-15").stdout
    import_id = begin_import(server, "nightly-2026-11-15")
    assert cli("span", "end", "nightly-2026-11-15").stdout.startswith("span nightly-2026-11-15: ending")
    timed_out = cli("span", "wait", "nightly-2026-11-15", "--timeout", "0.1", "--tenant", "acme")
    assert timed_out.returncode == 1
    settle(server, import_id, read=3, accepted=2, rejected=1)
    waited = cli("span", "wait", "nightly-2026-11-15")
    assert waited.returncode == 0, waited.stderr
    assert "ended; 1 import; rows: 3 read, 2 accepted, 1 rejected, 0 ignored" in waited.stdout
    shown = json.loads(cli("span", "show", "nightly-2026-11-15", "--json").stdout)
    assert (shown["state"], shown["imports"]) == ("ended", 1)
    assert "nightly-2026-11-15" in cli("span", "list", "--state", "ended").stdout


def test_a_span_that_was_aborted_exits_1_and_names_the_culprit(server: SmallServer, cli: Cli) -> None:
    cli("span", "begin", "doomed")
    import_id = begin_import(server, "doomed")
    settle(server, import_id, read=3, accepted=0, rejected=3)
    waited = cli("span", "wait", "doomed")
    assert waited.returncode == 1
    assert f"because of {import_id}: None of the 3 rows was accepted." in waited.stdout
    assert cli("span", "end", "doomed", "--wait").returncode == 1


def test_which_tenant_is_meant_must_be_clear(server: SmallServer, cli: Cli) -> None:
    server.apply(DefineTenant("other", agreement={}))
    unclear = cli("span", "begin", "x")
    assert unclear.returncode == 1
    assert "--tenant" in unclear.stderr
    assert cli("span", "begin", "x", "--tenant", "other").returncode == 0


def test_the_commands_of_a_webhook(server: SmallServer, client: Millrace, cli: Cli, target: HookTarget) -> None:
    added = cli("webhook", "add", "ops", target.url, "--type", "span.*", "--type", "import.*", "--as-they-come")
    assert added.returncode == 0, added.stderr
    secret = added.stdout.strip()
    assert secret.startswith("whsec_")
    assert cli("webhook", "test", "ops").returncode == 0
    assert target.received[-1].is_signed_with(secret)
    listed = json.loads(cli("webhook", "list", "--json").stdout)
    assert (listed["types"], listed["order"]) == (["span.*", "import.*"], "as_they_come")
    assert secret not in cli("webhook", "list").stdout
    assert cli("webhook", "pause", "ops").returncode == 0
    assert client.webhooks.show("acme", "ops")["enabled"] is False
    assert cli("webhook", "resume", "ops").returncode == 0
    assert cli("webhook", "rotate", "ops").stdout.strip() not in ("", secret)
    target.always = 404
    failed = cli("webhook", "test", "ops")
    assert (failed.returncode, failed.stderr.strip()) == (1, "webhook ops: It answered 404.")
    assert cli("webhook", "remove", "ops").returncode == 0
    assert cli("webhook", "test", "ops").returncode == 1
