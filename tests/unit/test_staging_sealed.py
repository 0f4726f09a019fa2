"""Files of client apps at rest under encryption: read as they were, cut and moved ones refused, each once over any crash."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millrace import failpoint
from millrace.beneath import opening
from millrace.exchange.app_folders import Staging
from millrace.exchange.home import Home
from millrace.exchange.keys import KeyFiles
from millrace.failpoint import Injected
from millrace.manage import unseal
from millrace.manage.logs import LOG_BYTES, RotatedLog, gather_own_logs, seal_logs
from millrace.manage.openrun import OpenRun
from millrace.manage.tidying import seal_left_logs, tidy
from millrace.model.errors import Corrupt, Invalid, KeyGone
from millrace.seal.keyring import Keyring
from millrace.seal.kms_local import LocalKms
from millrace.staging import inputs, sealed
from millrace.staging.arrivals import Arrival, waiting_files
from millrace.staging.inputs import give, have_arrived, take_back
from millrace.staging.runs import RUNNING, SUCCEEDED, Run, RunFolder
from millrace.staging.sealed import SealedFile, hour_seal, own_seal, plain_size, seal_file

MARKER = b"4012-8888"
GIVING = ("staging_after_open", "staging_before_show", "staging_after_show")
TAKING_BACK = ("staging_after_return", "staging_before_sealed", "staging_after_sealed")


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    made = Staging(Home(tmp_path), "acme")
    made.make()
    return made


@pytest.fixture
def keys(tmp_path: Path) -> Keyring:
    return Keyring(KeyFiles(Home(tmp_path)), lambda: LocalKms(tmp_path / "kms"))


@pytest.fixture
def crash_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    (tmp_path / "failpoints").mkdir()
    monkeypatch.setattr(failpoint, "_FOLDER", str(tmp_path / "failpoints"))
    return lambda point: (tmp_path / "failpoints" / point).write_text("raise") and None


def arrive(staging: Staging, keys: Keyring, name: str, text: bytes = MARKER) -> str:
    with Arrival(staging, name, keys) as arrival:
        arrival.write(text)
        return arrival.keep().name


def inside(staging: Staging) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in staging.inbox.iterdir() if not path.name.startswith(".")}


def plain_below(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and MARKER in path.read_bytes()]


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 20, 37])
def test_what_was_sealed_is_read_anywhere_as_it_was(
    staging: Staging, keys: Keyring, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(sealed, "FRAME_BYTES", 10)
    text, path = os.urandom(size), staging.taken / "a.csv"
    path.write_bytes(text)
    seal_file(path, staging.taken / "a.sealed", own_seal(keys, "acme", "fil_1"))
    assert [found.name for found in staging.taken.iterdir()] == ["a.sealed"]
    assert plain_size(staging.taken / "a.sealed") == size
    with SealedFile(staging.taken / "a.sealed", "a.csv", "acme", keys).open() as file:
        assert file.read() == text
        assert file.seek(0, os.SEEK_END) == size
        for begin in range(size):
            file.seek(begin)
            assert file.read(13) == text[begin : begin + 13]


def test_what_was_cut_changed_or_belongs_to_another_does_not_open(
    staging: Staging, keys: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealed, "FRAME_BYTES", 10)
    (staging.taken / "a").write_bytes(b"x" * 35)
    path = staging.taken / "a.sealed"
    seal_file(staging.taken / "a", path, own_seal(keys, "acme", "fil_1"))
    whole = path.read_bytes()
    keys.new("other", "fil_1")
    with pytest.raises(Corrupt):
        SealedFile(path, "a", "other", keys).open()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(Corrupt):
            SealedFile(path, "a", "acme", keys).open()
    path.write_bytes(whole[:-60] + b"?" + whole[-59:])
    with SealedFile(path, "a", "acme", keys).open() as file, pytest.raises(Corrupt):
        file.read()


def test_an_upload_is_sealed_until_its_program_runs(staging: Staging, keys: Keyring) -> None:
    names = [arrive(staging, keys, "a.csv"), arrive(staging, keys, "a.csv", b"two")]
    assert names[0] == "a.csv"
    assert [(file["file"], file["bytes"]) for file in waiting_files(staging, 10)] == sorted(
        zip(names, (9, 3), strict=True)
    )
    assert (plain_below(staging.home.root), have_arrived(staging)) == ([], True)
    arrived_at = (staging.arrived / "a.csv").stat().st_mtime_ns
    listed = waiting_files(staging, 10)
    give(staging, keys)
    assert inside(staging) == dict(zip(names, (MARKER, b"two"), strict=True))
    assert (waiting_files(staging, 10), have_arrived(staging)) == (listed, False)
    assert (staging.inbox / "a.csv").stat().st_mtime_ns == arrived_at
    assert arrive(staging, keys, "a.csv") != "a.csv", "one of that name waits in `in`"


def test_a_name_that_was_taken_meanwhile_is_not_overwritten(staging: Staging, keys: Keyring) -> None:
    arrive(staging, keys, "a.csv")
    (staging.inbox / "a.csv").write_bytes(b"plain")
    give(staging, keys)
    assert sorted(inside(staging).values()) == [MARKER, b"plain"]


@pytest.mark.parametrize("point", GIVING)
def test_a_crash_gives_no_file_twice_and_loses_none(
    staging: Staging, keys: Keyring, crash_at: Callable[[str], None], point: str
) -> None:
    for name in ("a.csv", "b.csv"):
        arrive(staging, keys, name)
    crash_at(point)
    with pytest.raises(Injected):
        give(staging, keys)
    # The program takes what it sees before the managers are back.
    seen = list(inside(staging))
    for name in seen:
        (staging.inbox / name).unlink()
    give(staging, keys)
    assert sorted([*seen, *inside(staging)]) == ["a.csv", "b.csv"]
    assert [path for folder in (staging.arrived, staging.given) for path in folder.iterdir()] == []
    assert [path.name for path in staging.inbox.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("point", TAKING_BACK)
def test_what_a_run_left_is_sealed_for_the_next_one(
    staging: Staging, keys: Keyring, crash_at: Callable[[str], None], point: str
) -> None:
    for name in ("a.csv", "b.csv"):
        (staging.inbox / name).write_bytes(MARKER)
        os.utime(staging.inbox / name, (1e9, 1e9))
    (staging.inbox / "link").symlink_to("a.csv")
    crash_at(point)
    with pytest.raises(Injected):
        take_back(staging, keys)
    take_back(staging, keys)
    assert plain_below(staging.home.root) == []
    assert sorted(path.name for path in staging.arrived.iterdir() if path.name[0] != ".") == ["a.csv", "b.csv"]
    give(staging, keys)
    assert {name: inside(staging)[name] for name in ("a.csv", "b.csv")} == {"a.csv": MARKER, "b.csv": MARKER}
    assert (staging.inbox / "a.csv").stat().st_mtime == 1e9


@pytest.mark.parametrize("moment", ["hour_seal", "staging_before_sealed"])
def test_an_upload_of_the_same_name_during_the_sealing_of_a_leftover_costs_neither(
    staging: Staging, keys: Keyring, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    (staging.inbox / "a.csv").write_bytes(b"left")
    hour_seal = inputs.hour_seal

    def upload(point: str) -> None:
        if point == moment:
            arrive(staging, keys, "a.csv", b"uploaded")

    def seal_later(*given: Any) -> Any:
        upload("hour_seal")
        return hour_seal(*given)

    monkeypatch.setattr(sealed, "reach", upload)
    monkeypatch.setattr(inputs, "hour_seal", seal_later)
    take_back(staging, keys)
    give(staging, keys)
    assert sorted(inside(staging).values()) == [b"left", b"uploaded"]


@pytest.mark.parametrize("is_known", [True, False])
def test_what_is_renamed_overwrites_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_known: bool) -> None:
    if not is_known:
        monkeypatch.setattr(opening, "_renamed", lambda *_: errno.EINVAL)
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    with pytest.raises(FileExistsError):
        opening.rename_new(tmp_path / "a", tmp_path / "b")
    opening.rename_new(tmp_path / "a", tmp_path / "c")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"b": "b", "c": "a"}
    with pytest.raises(FileNotFoundError):
        opening.rename_new(tmp_path / "a", tmp_path / "d")


@pytest.mark.parametrize("name", ["я" * 98 + ".csv", "a." + "x" * 198, "x" * 200])
def test_long_names_that_come_twice_reach_the_program_twice(staging: Staging, keys: Keyring, name: str) -> None:
    for _ in range(3):
        arrive(staging, keys, name)
    give(staging, keys)
    assert list(inside(staging).values()) == [MARKER] * 3
    assert max(len(os.fsencode(found)) for found in inside(staging)) <= 200


def test_a_file_that_the_disk_refuses_holds_up_no_other(
    staging: Staging, keys: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.csv", "b.csv"):
        arrive(staging, keys, name)
    own_as = inputs.own_as
    refusals = [OSError(errno.EIO, "no")]

    def refuse_first(*given: Any) -> None:
        if refusals:
            raise refusals.pop()
        own_as(*given)

    monkeypatch.setattr(inputs, "own_as", refuse_first)
    assert not give(staging, keys)
    assert [path.name for path in staging.inbox.iterdir()] == ["b.csv"], "nor does half of it lie there plain"
    assert give(staging, keys)
    assert sorted(inside(staging)) == ["a.csv", "b.csv"]


@pytest.mark.parametrize("point", GIVING)
def test_what_was_being_given_when_the_managers_were_killed_is_sealed_behind_the_run(
    staging: Staging, keys: Keyring, crash_at: Callable[[str], None], point: str
) -> None:
    arrive(staging, keys, "a.csv")
    crash_at(point)
    with pytest.raises(Injected):
        give(staging, keys)
    take_back(staging, keys)
    assert plain_below(staging.home.root) == []
    give(staging, keys)
    assert inside(staging) == {"a.csv": MARKER}


def test_damage_that_shows_late_leaves_nothing_plain(
    staging: Staging, keys: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealed, "FRAME_BYTES", 10)
    arrive(staging, keys, "a.csv", MARKER * 5)
    whole = (staging.arrived / "a.csv").read_bytes()
    (staging.arrived / "a.csv").write_bytes(whole[:-60] + b"?" + whole[-59:])
    give(staging, keys)
    assert [*staging.inbox.iterdir(), *staging.arrived.iterdir()] == []
    assert len(list((staging.failed / "arrived").iterdir())) == 1


def test_an_upload_that_nobody_can_open_holds_up_no_other(staging: Staging, keys: Keyring) -> None:
    for name in ("a.csv", "b.csv", "c.csv"):
        arrive(staging, keys, name)
    whole = (staging.arrived / "a.csv").read_bytes()
    (staging.arrived / "a.csv").write_bytes(whole[:-1])
    (staging.arrived / "b.csv").write_bytes(b"no sealed file at all")
    give(staging, keys)
    assert list(inside(staging)) == ["c.csv"]
    assert sorted(path.name[-12:] for path in staging.failed.rglob("*.sealed")) == ["a.csv.sealed", "b.csv.sealed"]


def test_a_destroyed_key_takes_the_files_with_it(staging: Staging, keys: Keyring, tmp_path: Path) -> None:
    (staging.taken / "a").write_bytes(MARKER)
    seal_file(staging.taken / "a", staging.taken / "a.sealed", own_seal(keys, "acme", "fil_1"))
    keys.destroy("acme")
    with pytest.raises(KeyGone):
        SealedFile(staging.taken / "a.sealed", "a", "acme", keys).open()


def test_retention_takes_sealed_inputs_only_once_they_were_read(staging: Staging, keys: Keyring) -> None:
    arrive(staging, keys, "a.csv")
    os.utime(staging.arrived / "a.csv", (1e9, 1e9))
    assert tidy(staging, 7) == 0
    begun = "2026-01-01T00:00:00.000Z"
    run = Run("run_" + "0" * 26, "acme", "batch", SUCCEEDED, "asked", 1, begun, ended_at="9999-01-01T00:00:00.000Z")
    RunFolder(staging.runs / run.id).write(run)
    assert (tidy(staging, 7), have_arrived(staging)) == (1, False)


def test_sealed_logs_are_read_as_plain_ones(staging: Staging, keys: Keyring) -> None:
    run = Run("run_" + "0" * 26, "acme", "batch", SUCCEEDED, "asked", 1, "2026-01-01T00:00:00.000Z", sealed=True)
    folder = RunFolder(staging.runs / run.id)
    folder.write(run)
    folder.sealed.mkdir()
    seal = hour_seal(keys, "acme", run.id)
    log = RotatedLog(folder.sealed / "stdout.log", most_bytes=300, seal=seal)
    for number in range(8):
        log.write(b"%d 4012-8888\n" % number)
    for text in ("before\n", "own 4012-8888\n"):
        (staging.log / "own.log").write_text(text)
        gather_own_logs(staging.log, folder.own_logs)
        seal_logs(folder.own_logs, folder.sealed_own_logs, seal)
    assert plain_below(staging.home.root) == []
    assert [log["name"] for log in folder.logs()] == ["files/own.log", "files/own.log.1", "stdout.log", "stdout.log.1"]
    said = [b"".join(folder.log_tail(name, 1000, keys)) for name in ("stdout.log.1", "stdout.log")]
    assert b"".join(said) == b"".join(b"%d 4012-8888\n" % number for number in range(8))
    assert sum(log["bytes"] for log in folder.logs() if log["name"].startswith("std")) == 8 * 12
    assert b"".join(folder.log_tail("stdout.log", 15, keys)) == b"88\n7 4012-8888\n"
    assert b"".join(folder.log_tail("files/own.log", 1000, keys)) == b"own 4012-8888\n"
    # Its last piece is half on disk: the manager was killed.
    (folder.sealed / "stdout.log").write_bytes((folder.sealed / "stdout.log").read_bytes()[:-3])
    assert b"".join(folder.log_tail("stdout.log", 1000, keys)).endswith(b"6 4012-8888\n")


def test_logs_that_the_program_called_as_it_liked_are_sealed(staging: Staging, keys: Keyring) -> None:
    folder, seal = RunFolder(staging.runs / ("run_" + "0" * 26)), hour_seal(keys, "acme", "run_1")
    folder.sealed.mkdir(parents=True)
    (folder.sealed / ".stdout.log.new").write_text("what the pump writes meanwhile")
    for name in ("я" * 126, "x" * 255, "stdout.log"):
        (staging.log / name).write_bytes(MARKER)
    gather_own_logs(staging.log, folder.own_logs)
    seal_logs(folder.own_logs, folder.sealed_own_logs, seal)
    assert [plain_size(path) for path in folder.sealed_own_logs.iterdir()] == [len(MARKER)] * 3
    assert plain_below(staging.home.root) == []
    assert (folder.sealed / ".stdout.log.new").read_text() == "what the pump writes meanwhile"


def test_a_log_that_grows_while_it_is_gathered_is_read_in_part(staging: Staging, keys: Keyring) -> None:
    """Its program may have it open still, and make it as long as it likes."""
    folder = RunFolder(staging.runs / ("run_" + "0" * 26))
    folder.path.mkdir()
    with (staging.log / "own.log").open("wb") as held:
        held.truncate(1 << 40)
        gather_own_logs(staging.log, folder.own_logs)
        assert (folder.own_logs / "own.log").stat().st_size == LOG_BYTES
        held.truncate(1 << 40)
        seal_logs(folder.own_logs, folder.sealed_own_logs, hour_seal(keys, "acme", "run_1"))
    assert plain_size(folder.sealed_own_logs / "own.log") == LOG_BYTES


def test_own_logs_of_a_run_without_a_seal_are_sealed_once_it_is_over(staging: Staging, keys: Keyring) -> None:
    (staging.log / "own.log").write_bytes(MARKER)
    begun = "2026-01-01T00:00:00.000Z"
    run = OpenRun(staging, Run("run_" + "0" * 26, "acme", "batch", RUNNING, "asked", 1, begun, sealed=True))
    run.app_ended(None)
    seal_left_logs(staging, lambda: keys)
    assert run.folder.has_own_logs, "its loop may still add to them"
    run.close()
    seal_left_logs(staging, lambda: keys)
    assert plain_below(staging.home.root) == []
    assert b"".join(run.folder.log_tail("files/own.log", 1000, keys)) == MARKER


def test_the_operator_reads_a_kept_file(
    staging: Staging, keys: Keyring, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(staging.home.root))
    (staging.done / "run_1").mkdir()
    (staging.done / "run_1" / "a.csv").write_bytes(MARKER)
    kept = staging.done / "run_1" / "a.csv.sealed"
    seal_file(staging.done / "run_1" / "a.csv", kept, own_seal(keys, "acme", "fil_1"))
    unseal.main([str(kept)])
    assert capfdbinary.readouterr().out == MARKER
    with pytest.raises(Invalid):
        unseal.main([str(staging.inbox / "a.csv")])
