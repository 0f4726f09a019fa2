"""Starts and ends of client apps as events: over REST and a webhook, once each, whoever is killed."""

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millrace.api.jobs.app_announcing import announce_apps
from millrace.exchange.app_news import AppNews
from millrace.manage.openrun import OpenRun, now_text
from millrace.model.names import new_id
from millrace.model.ops import Op
from millrace.model.ops.tenants import DefineTenant
from millrace.notify.subscription import checked_types, from_row
from millrace.staging.runs import CLUSTER, RUNNING, Run
from tests.support.small_server import SmallPlatform
from tests.support.whole_app import TOKEN, whole_app

AUTH = {"Authorization": f"Bearer {TOKEN}"}
ROWS = {"read": 3, "accepted": 2, "rejected": 1, "ignored": 0}


def begun(platform: SmallPlatform, mode: str = "batch", cause: str = "asked") -> OpenRun:
    staging = platform.exchange.app_folders("acme")
    staging.make()
    run = OpenRun(staging, Run(new_id("run"), "acme", mode, RUNNING, cause, 1, now_text()))
    run.tell_start()
    return run


def appending(platform: SmallPlatform) -> Any:
    def append(op: Op[Any]) -> "Future[None]":
        platform.apply(op)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    return append


def announced(client: Any) -> list[dict[str, Any]]:
    events = client.get("/v1/events", params={"tenant": "acme"}, headers=AUTH).json()["items"]
    return [event for event in events if event["type"].startswith("millrace.app.")]


def test_the_start_and_the_end_of_a_run_are_events_with_all_that_it_did(tmp_path: Path) -> None:
    with whole_app(tmp_path) as (platform, client):
        platform.apply(DefineTenant("acme", agreement={"client": "acme"}))
        run = begun(platform)
        for claim in ("1", "2", "2"):
            run.add_report({"claim": claim, "state": "completed" if claim == "1" else "failed", "rows": ROWS})
        run.app_ended(3)
        run.close()
        announce_apps(platform.exchange.app_news, appending(platform))
        started, failed = announced(client)
        assert (started["type"], failed["type"]) == ("millrace.app.started", "millrace.app.failed")
        assert {started["subject"], failed["subject"], failed["data"]["run"]} == {run.run.id}
        data = failed["data"]
        assert (data["tenant"], data["app"], data["exit_code"], data["state"]) == ("acme", "app", 3, "failed")
        assert data["reason"] == "The program ended with code 3."
        assert data["files"] == {"done": 1, "failed": 1}
        assert data["rows"] == {"read": 6, "accepted": 4, "rejected": 2, "ignored": 0}
        assert platform.exchange.app_news.waiting() == []


def test_what_is_appended_again_after_a_crash_is_the_same_event(tmp_path: Path) -> None:
    with whole_app(tmp_path) as (platform, client):
        platform.apply(DefineTenant("acme", agreement={"client": "acme"}))
        run, append = begun(platform), appending(platform)
        run.app_ended(0)
        run.close()
        for note in platform.exchange.app_news.waiting():
            announce_apps(platform.exchange.app_news, append)
            platform.exchange.app_news.put(note)
        announce_apps(platform.exchange.app_news, append)
        assert [event["type"] for event in announced(client)] == ["millrace.app.started", "millrace.app.succeeded"]
        assert len({event["id"] for event in announced(client)}) == 2


@pytest.mark.parametrize(
    ("mode", "exit_code", "error", "what"),
    [
        ("batch", 0, None, "succeeded"),
        ("batch", -9, None, "failed"),
        ("batch", None, None, "failed"),
        ("batch", None, "It could not be started.", "failed"),
        ("batch", -15, "It ran for more than 1 day.", "failed"),
        ("stream", 1, None, "failed"),
        ("stream", None, None, "failed"),
        ("stream", 0, "The agreement has changed.", "stopped"),
    ],
)
def test_what_each_end_is_called(tmp_path: Path, mode: str, exit_code: int | None, error: str, what: str) -> None:
    platform = SmallPlatform(tmp_path, ())
    run = begun(platform, mode)
    run.app_ended(exit_code, error)
    run.close()
    [_, end] = platform.exchange.app_news.waiting()
    assert end.what == what
    assert (end.data["reason"] is None) == (what == "succeeded")
    platform.store.close()


def test_a_run_that_was_closed_and_not_recorded_has_one_note(tmp_path: Path) -> None:
    """The managers were killed between the two: the next ones close it again, with what its reports say."""
    platform = SmallPlatform(tmp_path, ())
    run = begun(platform)
    run.app_ended(0)
    run.add_report({"claim": "1", "state": "completed", "rows": ROWS})
    before = run.run
    run.close()
    cut = replace(before, files={"done": 0, "failed": 0})
    run.folder.write(cut)
    again = OpenRun(platform.exchange.app_folders("acme"), run.folder.recounted(run.folder.read()))
    again.add_report({"claim": "1", "state": "completed", "rows": ROWS})
    again.close()
    [_, end] = platform.exchange.app_news.waiting()
    assert (end.what, end.data["files"], end.data["rows"]) == ("succeeded", {"done": 1, "failed": 0}, ROWS)
    platform.store.close()


def test_of_programs_elsewhere_and_of_notes_that_cannot_be_read_nothing_is_told(tmp_path: Path) -> None:
    platform = SmallPlatform(tmp_path, ())
    run = begun(platform, "stream", CLUSTER)
    run.app_ended(0)
    run.close()
    news: AppNews = platform.exchange.app_news
    assert news.waiting() == []
    news.home.app_news.mkdir(parents=True)
    (news.home.app_news / "run_x.ended.json").write_text("{}")
    assert news.waiting() == []
    assert list(news.home.app_news.iterdir()) == []
    platform.store.close()


def test_a_webhook_may_ask_for_ends_that_are_failures() -> None:
    row = {
        "id": "s",
        "tenant": "acme",
        "name": "n",
        "url": "https://x.example",
        "ordering": "in_order",
        "enabled": True,
    }
    hook = from_row({**row, "types": checked_types(["app.failed"]), "secrets": []})
    assert hook.wants("millrace.app.failed")
    assert not hook.wants("millrace.app.succeeded")


def test_a_report_that_was_cut_off_spoils_no_other_one(tmp_path: Path) -> None:
    """The managers were killed, or the disk was full, while they wrote it."""
    platform = SmallPlatform(tmp_path, ())
    run = begun(platform)
    run.add_report({"claim": "1", "state": "completed", "rows": ROWS})
    with (run.folder.path / "files.jsonl").open("a") as lines:
        lines.write('{"claim": "2", "sta')
    again = OpenRun(platform.exchange.app_folders("acme"), run.folder.recounted(run.run))
    assert again.run.files["done"] == 1
    for claim in ("2", "3"):
        again.add_report({"claim": claim, "state": "completed", "rows": ROWS})
    assert [report["claim"] for report in again.folder.reports()] == ["1", "2", "3"]
    assert again.run.files["done"] == 3
    platform.store.close()
