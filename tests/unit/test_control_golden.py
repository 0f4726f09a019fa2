"""Logs that earlier code wrote, and what it made of them: the code as it is makes the same of them.

A log in tests/golden/log is never written again: it stands for the logs of users. Its `.state` may be, if the store
changed on purpose: `python -m tests.support.golden_log` writes it, and the difference is then to be read."""

from pathlib import Path

import pytest

from tests.support.golden_log import GOLDEN, read_log, replay, text_of


@pytest.mark.parametrize("log", sorted(GOLDEN.glob("*.jsonl")), ids=lambda path: path.stem)
def test_an_old_log_gives_the_state_that_it_gave(log: Path, tmp_path: Path) -> None:
    found = text_of(replay(read_log(log), tmp_path)).splitlines()
    assert found == log.with_suffix(".state").read_text().splitlines()
