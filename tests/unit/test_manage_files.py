"""Files of `out`: when they are finished, how they are seen, and that nobody can make the platform take another's."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from millrace.exchange.app_folders import Staging
from millrace.exchange.home import Home
from millrace.manage import claiming
from millrace.manage.claiming import changed, file_away, file_of, open_claims, safe_name, take
from millrace.manage.completion import (
    SETTLE_SECONDS,
    STABLE_SECONDS,
    Completion,
    Health,
    How,
    Seen,
    decide,
    may_be_finished,
)
from millrace.manage.importing import table_of
from millrace.manage.outbox import MOST_SEEN, Outbox
from millrace.manage.tidying import tidy
from millrace.manage.watching import Watcher
from millrace.model.errors import Invalid
from tests.support.waiting import wait_until

WELL, GONE = Health(True), Health(False)
RUNNING_BATCH = Health(True, is_batch=True)


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    made = Staging(Home(tmp_path), "acme")
    made.make()
    return made


@pytest.mark.parametrize(
    "name", [".a.csv", "a.csv.tmp", "a.part", "x.partial", ".hidden/a.csv", "t/.a", "new.tmp/a.csv"]
)
def test_names_of_unfinished_files(name: str) -> None:
    assert not may_be_finished(name)


def test_what_was_renamed_into_place_is_taken_at_once() -> None:
    broken = Health(False, True, 100.0, False)
    for health in (WELL, GONE, RUNNING_BATCH, broken):
        assert decide(Seen("a", How.MOVED, 100.0), health, 100.0) is Completion.TAKE


def test_what_was_closed_is_taken_when_its_program_is_well_a_moment_later() -> None:
    seen = Seen("a", How.CLOSED, 100.0)
    assert decide(seen, WELL, 100.1) is Completion.WAIT
    assert decide(seen, WELL, 100.0 + SETTLE_SECONDS) is Completion.TAKE
    assert decide(seen, Health(False, ended_at=100.1), 101.0) is Completion.REFUSE
    assert decide(seen, Health(False, ended_at=100.1, ended_well=True), 100.1) is Completion.TAKE
    assert decide(seen, Health(True, ended_at=99.0), 101.0) is Completion.TAKE


def test_what_a_batch_run_closed_waits_for_its_end() -> None:
    seen = Seen("a", How.CLOSED, 100.0)
    assert decide(seen, RUNNING_BATCH, 999.0) is Completion.WAIT
    assert decide(seen, Health(False, True, 999.0, True), 999.0) is Completion.TAKE
    assert decide(seen, Health(False, True, 999.0, False), 999.0) is Completion.REFUSE


def test_what_was_only_found_must_not_change_for_a_while(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    status = (tmp_path / "a").stat()
    signature = (status.st_ino, status.st_size, status.st_mtime_ns)
    outbox, long_ago = Outbox(tmp_path), time.time() - STABLE_SECONDS
    outbox.note(Seen("a", How.FOUND, time.time(), signature))
    assert outbox.ripe(WELL, 10) == ([], [])
    outbox = Outbox(tmp_path)
    outbox.note(Seen("a", How.FOUND, long_ago, signature))
    (tmp_path / "a").write_text("12")
    assert outbox.ripe(WELL, 10) == ([], []), "it has changed since it was seen"
    assert outbox
    outbox = Outbox(tmp_path)
    outbox.note(Seen("a", How.FOUND, long_ago, (*signature[:1], 2, (tmp_path / "a").stat().st_mtime_ns)))
    assert outbox.ripe(WELL, 10) == (["a"], [])
    assert outbox.ripe(WELL, 10) == ([], []), "each is told once"


def test_files_are_taken_in_the_order_in_which_they_were_finished(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    for name in ("c", "a", "b"):
        outbox.note(Seen(name, How.MOVED, 1.0))
    outbox.note(Seen("c", How.MOVED, 2.0, (9, 9, 9)))
    assert outbox.ripe(WELL, 2) == (["a", "b"], [])
    assert outbox.ripe(WELL, 2) == (["c"], [])


def test_a_flood_of_files_is_not_kept_in_mind_but_found_again(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    for number in range(MOST_SEEN + 5):
        outbox.note(Seen(f"{number}.csv", How.MOVED, 1.0))
    assert not outbox.has_to_look_again()
    taken, _ = outbox.ripe(WELL, MOST_SEEN + 5)
    assert len(taken) == MOST_SEEN
    assert outbox.has_to_look_again()
    assert not outbox.has_to_look_again()


@pytest.mark.parametrize("poll", [False, True])
def test_a_watcher_sees_files_in_folders_that_are_made_later(tmp_path: Path, poll: bool) -> None:
    watcher, seen = Watcher(poll=poll), dict[str, How]()
    watcher.follow("acme", tmp_path)
    (tmp_path / "items" / "deep").mkdir(parents=True)
    (tmp_path / "items" / "deep" / "a.csv").write_text("1")
    (tmp_path / ".b").write_text("1")
    (tmp_path / ".b").rename(tmp_path / "b.csv")
    os.link(tmp_path / "b.csv", tmp_path / "c.csv")
    (tmp_path / "link.csv").symlink_to("b.csv")

    def all_seen() -> bool:
        seen.update({sighting.path: sighting.how for tenant, sighting in watcher.read() if tenant == "acme"})
        return seen.keys() == {"items/deep/a.csv", "b.csv", "c.csv"}

    wait_until(all_seen, 30, f"three files: {seen}")
    if not poll:
        assert (seen["b.csv"], seen["c.csv"]) == (How.MOVED, How.MOVED)
    assert watcher.means == ("polling" if poll else "inotify")


def test_a_watcher_follows_a_folder_that_took_the_place_of_the_first(tmp_path: Path) -> None:
    watcher, out = Watcher(), tmp_path / "out"
    out.mkdir()
    watcher.follow("acme", out)
    out.rename(tmp_path / "old")
    out.mkdir()
    (out / ".a").write_text("1")
    assert watcher.look("acme") == []
    (out / ".a").rename(out / "a.csv")
    seen = wait_until(watcher.read, 30, "news of the new folder")
    assert [(tenant, sighting.path, sighting.how) for tenant, sighting in seen] == [("acme", "a.csv", How.MOVED)]


def test_a_claim_outlives_a_crash_and_keeps_its_key(staging: Staging) -> None:
    (staging.outbox / "items").mkdir()
    (staging.outbox / "items" / "a.csv").write_text("1")
    claim = take(staging, "items/a.csv", "run_1", "run_1")
    assert claim is not None
    assert open_claims(staging) == [claim]
    again = changed(staging, claim, attempt=2)
    assert open_claims(staging) == [again]
    assert again.idempotency_key != claim.idempotency_key
    place = file_away(staging, again, {"state": "completed"})
    assert place == staging.done / "run_1" / "items" / "a.csv"
    assert place.with_name("a.csv.report.json").exists()
    assert open_claims(staging) == []


def test_a_file_that_is_gone_is_no_claim(staging: Staging) -> None:
    assert take(staging, "a.csv", "run_1", "run_1") is None
    assert list(staging.taken.iterdir()) == []


def test_a_folder_that_became_a_link_is_not_entered(staging: Staging, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "secret.csv").write_text("theirs")
    (staging.outbox / "items").symlink_to(tmp_path / "theirs")
    assert take(staging, "items/secret.csv", "run_1", "run_1") is None
    assert (tmp_path / "theirs" / "secret.csv").exists()


def test_two_files_of_one_name_are_both_kept(staging: Staging) -> None:
    for text in ("1", "2"):
        (staging.outbox / "a.csv").write_text(text)
        claim = take(staging, "a.csv", "run_1", "run_1")
        assert claim is not None
        file_away(staging, claim, {"state": "failed"})
    kept = [path.read_text() for path in staging.failed.rglob("*a.csv")]
    assert sorted(kept) == ["1", "2"]


def filed(staging: Staging, name: str) -> Path:
    claim = take(staging, name, "run_1", "run_1")
    assert claim is not None
    return file_away(staging, claim, {"state": "failed", "claim": claim.id})


def test_what_is_no_file_leaves_nothing_but_its_report(staging: Staging, tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (staging.outbox / "a.csv").write_text("1")
    (staging.outbox / "a.csv.report.json").symlink_to(tmp_path / "theirs")
    (staging.outbox / "folder.csv").mkdir()
    (staging.outbox / "folder.csv" / "inner").write_text("1")
    for name in ("a.csv.report.json", "folder.csv", "a.csv"):
        filed(staging, name)
    assert (tmp_path / "theirs").read_text() == "theirs"
    kept = sorted(path.name for path in (staging.failed / "run_1").iterdir())
    assert kept == ["a.csv", "a.csv.report.json", "a.csv.report.json.report.json", "folder.csv.report.json"]
    assert list(staging.taken.iterdir()) == []


def test_a_report_never_overwrites_what_has_its_name(staging: Staging, tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (staging.failed / "run_1").mkdir()
    (staging.failed / "run_1" / "linked.csv.report.json").symlink_to(tmp_path / "theirs")
    for name in ("a.csv.report.json", "a.csv", "linked.csv"):
        (staging.outbox / name).write_text(f"data of {name}")
        filed(staging, name)
    assert (tmp_path / "theirs").read_text() == "theirs"
    assert (staging.failed / "run_1" / "a.csv.report.json").read_text() == "data of a.csv.report.json"


def test_a_file_whose_filing_was_cut_off_has_one_report(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(point: str) -> None:
        if point == "manage_before_filing":
            raise InterruptedError

    (staging.outbox / "a.csv").write_text("1")
    with monkeypatch.context() as crashing:
        crashing.setattr(claiming, "reach", cut_off)
        with pytest.raises(InterruptedError):
            filed(staging, "a.csv")
    [claim] = open_claims(staging)
    file_away(staging, claim, {"state": "failed", "claim": claim.id, "again": True})
    assert sorted(path.name for path in (staging.failed / "run_1").iterdir()) == ["a.csv", "a.csv.report.json"]
    assert json.loads((staging.failed / "run_1" / "a.csv.report.json").read_text())["again"]


def test_names_that_are_no_text_or_too_long_can_be_kept(staging: Staging) -> None:
    for name in (os.fsdecode(b"\xff\xfe.csv"), "x" * 240 + ".csv", "two\nlines.csv"):
        (staging.outbox / name).write_text("1")
        claim = take(staging, name, "run_1", "run_1")
        assert claim is not None
        assert file_of(staging, claim).exists()
        assert file_away(staging, claim, {"state": "completed"}).exists()
        assert safe_name(name).endswith(".csv")


def test_the_table_of_a_file() -> None:
    assert table_of("items/a.csv", ["items", "notes"]) == "items"
    assert table_of("a.csv", ["items"]) == "items"
    for path, tables in (("a.csv", ["items", "notes"]), ("other/a.csv", ["items"]), ("a.csv", [])):
        with pytest.raises(Invalid) as refused:
            table_of(path, tables)
        assert all(table in refused.value.remedy for table in tables)


def test_retention_takes_files_that_are_old_and_inputs_only_once_they_were_read(staging: Staging) -> None:
    old = time.time() - 8 * 86_400
    for folder in (staging.done / "run_1" / "items", staging.failed / "run_1"):
        folder.mkdir(parents=True)
    for path in (
        staging.done / "run_1" / "items" / "a.csv",
        staging.failed / "run_1" / "b.csv",
        staging.inbox / "c.csv",
    ):
        path.write_text("1")
        os.utime(path, (old, old))
    (staging.failed / "run_1" / "new.csv").write_text("1")
    assert tidy(staging, 7) == 2
    assert not (staging.done / "run_1").exists()
    assert (staging.inbox / "c.csv").exists(), "no run has read it"
    assert [path.name for path in staging.failed.rglob("*.csv")] == ["new.csv"]


def test_retention_never_leaves_the_folder_it_clears(
    staging: Staging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program swaps its folder for a link as soon as what lies in it has been listed."""
    old = time.time() - 8 * 86_400
    for folder in (tmp_path / "theirs", staging.done / "inner"):
        folder.mkdir()
        (folder / "a.csv").write_text("1")
        os.utime(folder / "a.csv", (old, old))
    unlink = os.unlink

    def swap_first(path: Any, **more: Any) -> None:
        monkeypatch.undo()
        (staging.done / "inner").rename(staging.outbox / "inner")
        (staging.done / "inner").symlink_to(tmp_path / "theirs")
        unlink(path, **more)

    monkeypatch.setattr(os, "unlink", swap_first)
    tidy(staging, 7)
    assert (staging.done / "inner").is_symlink(), "it was swapped"
    assert (tmp_path / "theirs" / "a.csv").exists()
