"""A program that runs on Kubernetes: the managers start nothing here, and import what it has finished."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from millrace.exchange.app_folders import Staging
from millrace.exchange.home import Home
from millrace.exchange.keys import KeyFiles
from millrace.manage import app_runner, completion, poll_timer
from millrace.manage.app_runner import AppRunner
from millrace.manage.poll_timer import PollTimer
from millrace.model.agreement import parse_agreement
from millrace.seal.keyring import Keyring
from millrace.seal.kms_local import LocalKms
from millrace.staging.runs import run_folders
from tests.support.fake_platform import FakePlatform, fake_platform
from tests.support.tended import tools_at
from tests.support.waiting import wait_until


@pytest.fixture
def fake() -> Iterator[FakePlatform]:
    with fake_platform() as platform:
        platform.answers["GET", "/v1/tenants/acme"] = {"tables": ["readings"]}
        yield platform


@pytest.fixture
def tended(fake: FakePlatform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AppRunner]:
    monkeypatch.setattr(completion, "STABLE_ELSEWHERE_SECONDS", 0.3)
    monkeypatch.setattr(app_runner, "LOOK_SECONDS", 0.05)
    with tools_at(
        fake.url, tmp_path, lambda: Keyring(KeyFiles(Home(tmp_path)), lambda: LocalKms(tmp_path / "kms"))
    ) as tools:
        yield AppRunner(tools, Staging(Home(tmp_path), "acme"))


def agree(tended: AppRunner, app: dict[str, Any] | None, revision: int = 1) -> None:
    document = {"client": "acme", "schedule": "* * * * *", **({} if app is None else {"app": app})}
    tended.agree(parse_agreement(document)[0], revision)


def ticked(tended: AppRunner, condition: Callable[[], Any]) -> Callable[[], Any]:
    def look() -> Any:
        tended.tick(datetime.now(UTC))
        return condition()

    return look


def states(tended: AppRunner) -> list[tuple[str, str]]:
    runs = sorted((folder.read() for folder in run_folders(tended.staging)), key=lambda run: run.started_at)
    return [(run.cause, run.state) for run in runs]


def test_its_files_are_imported_and_nothing_is_started_here(tended: AppRunner, fake: FakePlatform) -> None:
    agree(tended, {"image": "apps/a:1", "command": ["/bin/false"]})
    (tended.staging.outbox / "a.csv").write_text("id\n1\n")
    (tended.staging.outbox / ".b.csv").write_text("id\n2\n")
    wait_until(ticked(tended, lambda: list(tended.staging.done.rglob("a.csv"))), 20, "the file to be imported")
    assert [bytes(body) for body in fake.stored.values()] == [b"id\n1\n"]
    assert [path.name for path in tended.staging.outbox.iterdir()] == [".b.csv"]
    assert states(tended) == [("cluster", "running")]
    wait_until(ticked(tended, lambda: not tended.is_busy), 20, "the managers to be at rest")


def test_a_file_that_still_grows_is_left_alone(
    tended: AppRunner, fake: FakePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "STABLE_ELSEWHERE_SECONDS", 1.0)
    agree(tended, {"image": "apps/a:1"})
    growing, text = tended.staging.outbox / "a.csv", "id\n"
    began = datetime.now(UTC)

    def grow() -> bool:
        nonlocal text
        text += "1\n"
        growing.write_text(text)
        return datetime.now(UTC) - began > timedelta(seconds=2)

    wait_until(ticked(tended, grow), 20, "time to pass")
    assert fake.stored == {}
    wait_until(ticked(tended, lambda: fake.stored and not tended.is_busy), 20, "the file to be imported")
    assert [bytes(body).decode() for body in fake.stored.values()] == [text]


def test_a_new_agreement_is_a_new_run_and_one_without_an_image_is_none(tended: AppRunner) -> None:
    agree(tended, {"image": "apps/a:1"})
    wait_until(ticked(tended, lambda: states(tended) == [("cluster", "running")]), 20, "the first run")
    agree(tended, {"image": "apps/a:2"}, revision=2)
    both = [("cluster", "succeeded"), ("cluster", "running")]
    wait_until(ticked(tended, lambda: states(tended) == both), 20, "the second run")
    agree(tended, None, revision=3)
    wait_until(ticked(tended, lambda: tended.is_idle), 20, "the last run to be closed")
    assert [state for _, state in states(tended)] == ["succeeded", "succeeded"]


@pytest.mark.parametrize(("took", "pause"), [(0.01, 1.0), (0.2, 4.0), (6.0, 10.0)])
def test_what_took_long_is_done_less_often_but_not_forgotten(
    monkeypatch: pytest.MonkeyPatch, took: float, pause: float
) -> None:
    """A server that hung for some seconds must not keep the managers from new agreements for minutes."""
    now = 100.0
    monkeypatch.setattr(poll_timer.time, "monotonic", lambda: now)
    timer = PollTimer(1.0)
    assert timer.is_due()
    now += took
    timer.pause(0.05, 10.0)
    now += pause - 0.05
    assert not timer.is_due()
    now += 0.1
    assert timer.is_due()
