"""Logs that earlier code wrote, and what it made of them: the code as it is makes the same of them.

A log in tests/golden/log is never written again: it stands for the logs of users. Its `.state` may be, if the store
changed on purpose: `python -m tests.support.golden_log` writes it, and the difference is then to be read."""

from pathlib import Path

import pytest

from tests.support.golden_log import GOLDEN, read_log, replay, text_of, with_short_ops


@pytest.mark.parametrize("log", sorted(GOLDEN.glob("*.jsonl")), ids=lambda path: path.stem)
def test_an_old_log_gives_the_state_that_it_gave(log: Path, tmp_path: Path) -> None:
    found, expected = text_of(replay(read_log(log), tmp_path)), log.with_suffix(".state").read_text()
    assert [with_short_ops(line) for line in found.splitlines()] == [
        with_short_ops(line) for line in expected.splitlines()
    ]
