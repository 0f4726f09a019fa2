"""Files of client apps at rest under encryption: read as they were, cut and moved ones refused, each once over any crash."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace import failpoint
from millrace.failpoint import Injected
from millrace.manage import unseal
from millrace.manage.logs import RotatedLog, gather_own_logs, seal_logs
from millrace.manage.tidying import tidy
from millrace.model.errors import Corrupt, Invalid, KeyGone
from millrace.model.names import Home
from millrace.seal.keyring import Keyring
from millrace.seal.kms_local import LocalKms
from millrace.staging import sealed
from millrace.staging.arrivals import Arrival, waiting_files
from millrace.staging.folders import Staging
from millrace.staging.inputs import give, have_arrived, take_back
from millrace.staging.runs import SUCCEEDED, Run, RunFolder
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
    return Keyring(Home(tmp_path), LocalKms(tmp_path / "kms"))


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
    assert [(file.file, file.bytes) for file in waiting_files(staging, 10)] == sorted(zip(names, (9, 3), strict=True))
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
    keys.kms.destroy("acme")
    keys.forget("acme")
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
