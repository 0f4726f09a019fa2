"""The checker is green on a run that is right; red on every damage planted in it, and on a run in which nothing happened."""

from pathlib import Path

import pytest

from checker.__main__ import main
from checker.checks import CHECKS, check_all
from checker.dump import Dump, load, save
from checker.selftest.damages import DAMAGES, caught
from checker.selftest.good_run import good_run


@pytest.fixture(scope="module")
def trial() -> dict[str, bool]:
    return {planted.name: is_found for planted, is_found in caught()}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_run_that_is_right_is_green(seed: int) -> None:
    findings = check_all(good_run(seed))
    assert [found.check for found in findings if not found.is_green] == []
    assert [found.check for found in findings] == list(CHECKS)


@pytest.mark.parametrize("name", [planted.name for planted in DAMAGES])
def test_a_damage_is_found(trial: dict[str, bool], name: str) -> None:
    assert trial[name]


def test_there_are_at_least_twenty_damages_and_one_for_every_check() -> None:
    assert len(DAMAGES) >= 20
    assert {planted.found_by for planted in DAMAGES} == set(CHECKS)


def test_a_run_in_which_nothing_happened_is_red_in_every_check() -> None:
    assert [found.check for found in check_all(Dump()) if found.is_green] == []


def test_a_dump_says_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    written = good_run()
    save(written, tmp_path)
    before, after = check_all(written), check_all(load(tmp_path))
    assert [(f.check, f.comparisons, f.violations) for f in after] == [
        (f.check, f.comparisons, f.violations) for f in before
    ]


def test_the_command_fails_on_a_damaged_and_on_an_empty_dump(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = good_run()
    save(good, tmp_path / "good")
    assert main(["check", str(tmp_path / "good")]) == 0
    good.rejected = good.rejected[1:]
    save(good, tmp_path / "bad")
    assert main(["check", str(tmp_path / "bad")]) == 1
    assert "a rejected row is not kept" in capsys.readouterr().out
    (tmp_path / "empty").mkdir()
    assert main(["check", str(tmp_path / "empty")]) == 1


def test_a_last_line_that_was_being_written_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "files.jsonl").write_text('{"file": 1}\n{"file": 2')
    assert load(tmp_path).files == [{"file": 1}]
