"""The SDK besides uploads: where the platform is found, what survives an outage, how problems look."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace

import pytest

from millrace.client import Millrace, Problem, Unreachable, Unready, find_endpoint
from millrace.model.errors import Invalid, Unavailable
from tests.support.fake_platform import TOKEN, FakePlatform, Refuse, fake_platform

ELSEWHERE = {"MILLRACE_URL": "http://elsewhere:1/", "MILLRACE_TOKEN": "mr_x"}


@pytest.fixture
def fake() -> Iterator[FakePlatform]:
    with fake_platform() as platform:
        yield platform


@pytest.fixture
def platform(fake: FakePlatform) -> Iterator[Millrace]:
    with Millrace(fake.url, TOKEN) as connection:
        yield connection


def client_file(home: Path, url: str = "http://here:2") -> Path:
    home.mkdir(exist_ok=True)
    (home / "client.json").write_text(json.dumps({"url": url, "token": "mr_here"}))
    return home


def test_a_named_home_wins_then_the_environment_then_its_home(tmp_path: Path) -> None:
    home = client_file(tmp_path / "home")
    assert find_endpoint(home, ELSEWHERE).url == "http://here:2"
    assert find_endpoint(None, {**ELSEWHERE, "MILLRACE_HOME": str(home)}).url == "http://elsewhere:1"
    assert find_endpoint(None, {"MILLRACE_HOME": str(home)}).token == "mr_here"


def test_a_token_is_not_shown(tmp_path: Path) -> None:
    assert "mr_here" not in repr(find_endpoint(client_file(tmp_path), {}))


def test_a_home_without_a_usable_client_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="millrace --home"):
        find_endpoint(tmp_path, {})
    (tmp_path / "client.json").write_text("[]")
    with pytest.raises(Invalid, match="Start the platform again"):
        find_endpoint(tmp_path, {})


@pytest.mark.parametrize("token", ["mr_é", "mr_x\n", " mr_x"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(Invalid, match="MILLRACE_TOKEN") as refused:
        find_endpoint(None, {**ELSEWHERE, "MILLRACE_TOKEN": token})
    assert token not in str(refused.value)


@pytest.mark.parametrize("url", ["", "nonsense", "http://host:port", "ftp://host"])
def test_an_address_that_is_none_is_told_apart(url: str) -> None:
    with pytest.raises((Unreachable, Invalid)), Millrace(url, TOKEN) as connection:
        connection.tenants.list()


def test_a_problem_tells_all_it_knows(fake: FakePlatform, platform: Millrace) -> None:
    fake.refusals = [Refuse(409, {"title": "Clash", "code": "clash", "detail": "Taken.", "remedy": "Rename."})]
    with pytest.raises(Problem) as raised:
        platform.tenants.list()
    assert (raised.value.status, raised.value.code, str(raised.value)) == (409, "clash", "Taken. Rename.")


def test_an_unready_platform_is_a_problem_that_may_pass(fake: FakePlatform, platform: Millrace) -> None:
    fake.refusals = [Refuse(503, {"detail": "Kafka is away."})]
    with pytest.raises(Unready) as raised:
        platform.tenants.list()
    assert raised.value.may_pass
    assert isinstance(raised.value, Unavailable)


def test_a_degraded_platform_still_tells_its_health(fake: FakePlatform, platform: Millrace) -> None:
    fake.refusals = [Refuse(503, {"status": "degraded", "parts": {"kafka": "away"}})]
    assert platform.health() == {"status": "degraded", "parts": {"kafka": "away"}}


def test_names_cannot_reach_another_route(fake: FakePlatform, platform: Millrace) -> None:
    for name in ("../../tokens", "..", "a/b", "a?b#c"):
        with pytest.raises(Problem):
            platform.tables.show(name, "t")
    assert all(path.startswith("/v1/tenants/") and path.count("/") == 5 for _, path in fake.requests)


def test_waiting_goes_on_through_an_outage(fake: FakePlatform, platform: Millrace) -> None:
    fake.refusals = [Refuse(503, {}), Refuse(500, {})]
    assert platform.imports.wait("imp_1")["state"] == "completed"


def test_waiting_ends_when_the_time_is_up(fake: FakePlatform, platform: Millrace) -> None:
    fake.outcome = {"state": "processing"}
    assert platform.imports.wait("imp_1", timeout=0.1)["state"] == "processing"


def test_waiting_ends_when_the_import_does(fake: FakePlatform, platform: Millrace) -> None:
    fake.outcome = {"state": "processing"}
    timer = threading.Timer(0.2, fake.outcome.update, kwargs={"state": "failed"})
    timer.start()
    assert platform.imports.wait("imp_1", timeout=30)["state"] == "failed"
    timer.join(20)


def test_waiting_for_what_is_not_there_is_a_problem(fake: FakePlatform, platform: Millrace) -> None:
    fake.refusals = [Refuse(404, {})]
    with pytest.raises(Problem):
        platform.imports.wait("imp_1")


def test_a_broken_event_stream_is_taken_up_where_it_stopped(platform: Millrace) -> None:
    heard = list(islice(platform.events.follow(after=6), 3))
    assert heard == [(7, {"id": "e7"}), (8, {"id": "e8"}), (9, {"id": "e9"})]


def leaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between any two looks at the clock far more time passes than anyone has patience for; pauses take none."""
    clock = SimpleNamespace(monotonic=partial(next, count(1.0, 1000.0)), sleep=lambda seconds: None)
    monkeypatch.setattr("millrace.client.events.time", clock)


def test_events_are_followed_through_breaks_however_long_nothing_happens(
    fake: FakePlatform, platform: Millrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaps(monkeypatch)
    fake.quiet_streams = 3
    assert list(islice(platform.events.follow(after=6), 2)) == [(7, {"id": "e7"}), (8, {"id": "e8"})]


def test_following_ends_when_no_connection_is_made_for_long(
    fake: FakePlatform, platform: Millrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaps(monkeypatch)
    fake.refusals = [None, Refuse(503, {}), Refuse(503, {})]
    events = platform.events.follow(after=0)
    next(events)
    with pytest.raises(Unready):
        next(events)


def test_events_end_with_the_connection(platform: Millrace) -> None:
    events = platform.events.follow(after=0)
    next(events)
    platform.close()
    assert list(events) == []


def test_errors_stop_at_the_limit(fake: FakePlatform, platform: Millrace) -> None:
    rows = [{"row": n} for n in range(4)]
    fake.pages = {None: {"items": rows[:2], "next": "c"}, "c": {"items": rows[2:3], "next": "d"}}
    assert list(platform.rejected.list("imp_1", limit=3)) == rows[:3]
