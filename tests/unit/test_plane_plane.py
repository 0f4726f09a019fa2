"""A query that fails again and again is named by the platform's health, until it gets on."""

import json
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest

from millrace.api.health import _stuck
from millrace.exchange.home import Home
from millrace.exchange.places import Places
from millrace.plane.plane import DataPlane


class Failing:
    isActive = False
    lastProgress = None

    def exception(self) -> Exception:
        return OSError("no room")


class Heard:
    def append(self, *_: Any) -> None:
        """Nobody asks what was told."""


def commit(home: Home, query: str, batch: int, offset: int) -> None:
    for folder in ("commits", "offsets"):
        (home.checkpoints / query / folder).mkdir(parents=True, exist_ok=True)
    lines = ("v1", "{}", json.dumps({"topic": {"0": offset}}))
    (home.checkpoints / query / "offsets" / str(batch)).write_text("\n".join(lines))
    (home.checkpoints / query / "commits" / str(batch)).write_text("v1")


def test_a_query_that_fails_in_a_row_is_named_until_it_gets_on(tmp_path: Path) -> None:
    home = Home(tmp_path)
    plane = DataPlane(lambda: {"sink-x": Failing}, Places(home), Heard())  # type: ignore[arg-type, dict-item]
    commit(home, "sink-x", 0, 5)
    plane._keep_running()
    plane._tell_checkpoints(again=True)
    for said in ("", "sink-x has failed 2 times in a row", "sink-x has failed 3 times in a row"):
        plane._queries["sink-x"].due = 0.0
        plane._keep_running()
        plane._tell_checkpoints(again=True)
        assert _stuck(generate_latest()).startswith(said)
        assert bool(said) == bool(_stuck(generate_latest()))
        plane._queries["sink-x"].query = Failing()  # type: ignore[assignment]
    commit(home, "sink-x", 1, 9)
    plane._tell_checkpoints(again=False)
    assert not _stuck(generate_latest())
