"""What a cluster is told of the parts that answer no requests of their own."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from millrace.exchange.apps import AppBoard, AppsReport
from millrace.exchange.home import Home
from millrace.k8s.probe import SILENT_SECONDS, main
from tests.support.hook_target import hook_target
from tests.support.small_server import small_server


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    (tmp_path / "run").mkdir()
    return Home(tmp_path)


def test_a_data_plane_that_shows_its_metrics_lives(home: Home, tmp_path: Path) -> None:
    with small_server(tmp_path / "other") as server:
        home.data_plane.write_text(json.dumps({"metrics_port": int(server.url.rsplit(":", 1)[1])}))
        assert main(["data-plane"]) == 0
    assert main(["data-plane"]) == 1


@pytest.mark.parametrize("note", ["", "[]", "{}", '{"metrics_port": "x"}'])
def test_a_note_that_says_nothing_is_no_life(home: Home, note: str) -> None:
    home.data_plane.write_text(note)
    home.apps.write_text(note)
    assert (main(["data-plane"]), main(["manager"])) == (1, 1)


def test_a_port_that_answers_something_else_is_no_data_plane(home: Home) -> None:
    with hook_target() as target:
        home.data_plane.write_text(json.dumps({"metrics_port": int(target.url.split(":")[2].split("/")[0])}))
        assert main(["data-plane"]) == 1


def test_managers_that_have_looked_around_lately_live(home: Home) -> None:
    assert main(["manager"]) == 1
    for age, code in ((0.0, 0), (SILENT_SECONDS + 1, 1)):
        at = (datetime.now(UTC) - timedelta(seconds=age)).isoformat()
        AppBoard(home).report(AppsReport({}, "", "", {}, at))
        assert main(["manager"]) == code


@pytest.mark.parametrize("words", [[], ["nothing"], ["manager", "manager"]])
def test_what_cannot_be_asked_is_a_usage_error(words: list[str]) -> None:
    assert main(words) == 2
