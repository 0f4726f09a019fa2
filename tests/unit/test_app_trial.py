"""The test kit: what it finds in the samples, and in programs that break the contract."""

import sys
from pathlib import Path

import pytest

from millrace.manage.trial import Trial
from millrace.model.errors import Invalid

SAMPLES = Path(__file__).parents[2] / "apps"
HERE = 'cd "$SOURCE_PATH/$CLIENT_ID"; '


@pytest.fixture
def given(tmp_path: Path) -> Path:
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "export.csv").write_text("﻿id; name ;share\n1; a ;1,5\n\n2;b;-1.234,5\n", encoding="utf-8")
    return folder


def verdicts(trial: Trial) -> dict[str, bool | None]:
    return {check.name: check.ok for check in trial.checks()}


@pytest.mark.parametrize(
    "command", [(str(SAMPLES / "pass_through.sh"),), (sys.executable, str(SAMPLES / "wrangle.py"))]
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_the_samples_keep_to_the_contract(
    given: Path, tmp_path: Path, command: tuple[str, ...], is_stream: bool
) -> None:
    words = (*command, "--watch") if is_stream else command
    found = verdicts(Trial(words, given, tmp_path / "trial", ("items",), is_stream))
    assert set(found.values()) == {True}, found
    expected = {"stop"} if is_stream else {"end", "second run", "kill -9"}
    assert found.keys() == {"files", "half-written", "input", "table"} | expected


def test_the_wrangling_sample_makes_plain_csv(given: Path, tmp_path: Path) -> None:
    list(
        Trial((sys.executable, str(SAMPLES / "wrangle.py")), given, tmp_path / "trial", env={"TABLE": "items"}).checks()
    )
    made = tmp_path / "trial" / "whole" / "client" / "out" / "items" / "export.csv"
    assert made.read_text() == "id,name,share\n1,a,1.5\n2,b,-1234.5\n"


def test_a_program_that_writes_under_the_final_name_is_found_out_by_a_kill(given: Path, tmp_path: Path) -> None:
    slow = HERE + "echo 1 > out/a.csv; sleep 0.4; echo 2 >> out/a.csv"
    found = verdicts(Trial(("sh", "-c", slow), given, tmp_path / "trial"))
    assert (found["end"], found["kill -9"], found["input"]) == (True, False, None)


def test_what_else_is_found(given: Path, tmp_path: Path) -> None:
    found = verdicts(
        Trial(("sh", "-c", HERE + "date +%N > out/$$.csv; touch out/x.tmp"), given, tmp_path / "1", ("a", "b"))
    )
    assert (found["second run"], found["half-written"], found["table"]) == (False, False, False)
    assert verdicts(Trial(("sh", "-c", "exit 3"), given, tmp_path / "2"))["end"] is False
    assert verdicts(Trial(("sleep", "60"), given, tmp_path / "3", seconds=0.2))["end"] is False
    with pytest.raises(Invalid, match="cannot be run"):
        list(Trial(("/nowhere/at/all",), given, tmp_path / "4").checks())
