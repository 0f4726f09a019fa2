"""What every back end of a mailbox promises, shown on the embedded one. `mailboxes` is a platform as one of its processes
sees it, `other` as another one does: what one writes the other reads, also after it was shipped to a Spark worker."""

import pickle
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from millrace.exchange import definitions as definitions_module
from millrace.exchange.apps import AppsReport
from millrace.exchange.client_file import ClientFile, read_client_file, write_client_file
from millrace.exchange.data_plane import Jvm
from millrace.exchange.ends import ImportEnded, RowsAged
from millrace.exchange.mailboxes import Exchange, open_exchange
from millrace.model.table import Definition
from millrace.settings import KEYS_HERE
from tests.support.revisions import ID, Revisions

BACK_ENDS = {"embedded": open_exchange}
ENDED = ImportEnded("imp_1", "print", 7, (0, 2))


@pytest.fixture(params=BACK_ENDS)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    return request.param, tmp_path


@pytest.fixture
def mailboxes(root: tuple[str, Path]) -> Exchange:
    return BACK_ENDS[root[0]](root[1])


@pytest.fixture
def other(root: tuple[str, Path]) -> Exchange:
    shipped: Exchange = pickle.loads(pickle.dumps(BACK_ENDS[root[0]](root[1])))
    return shipped


def defined() -> Definition:
    return Revisions().add(ID)


# Definitions and kinds of sinks


def test_a_published_definition_is_read_everywhere(mailboxes: Exchange, other: Exchange) -> None:
    definition = defined()
    with pytest.raises(FileNotFoundError):
        other.definitions.read(definition.fingerprint)
    for _ in range(2):
        mailboxes.definitions.publish(definition)
    assert other.definitions.read(definition.fingerprint) == definition


def test_a_definition_is_parsed_once_in_a_process(mailboxes: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    definition = defined()
    mailboxes.definitions.publish(definition)
    first = mailboxes.definitions.read(definition.fingerprint)
    monkeypatch.setattr(definitions_module, "Definition", None)
    assert pickle.loads(pickle.dumps(mailboxes)).definitions.read(definition.fingerprint) is first


def test_a_forgotten_definition_is_gone(mailboxes: Exchange) -> None:
    definition = defined()
    mailboxes.definitions.publish(definition)
    mailboxes.definitions.read(definition.fingerprint)
    for _ in range(2):
        mailboxes.definitions.forget(definition.fingerprint)
    with pytest.raises(FileNotFoundError):
        mailboxes.definitions.read(definition.fingerprint)


def test_kinds_of_sinks_are_noted_with_the_definition(mailboxes: Exchange, other: Exchange) -> None:
    assert other.sink_kinds.used() == []
    definition = defined()
    targets = tuple(replace(definition.table.targets[0], kind=kind, name=kind) for kind in ("kafka", "delta", "files"))
    mailboxes.definitions.publish(replace(definition, table=replace(definition.table, targets=targets)))
    assert other.sink_kinds.used() == ["files", "kafka"], "tables on this disk need no query of their own"


# Stops


def test_a_stop_keeps_its_first_moment(mailboxes: Exchange, other: Exchange) -> None:
    assert other.stops.stopped_ms("imp_1") is None
    before = time.time_ns() // 1_000_000
    mailboxes.stops.stop("imp_1")
    first = other.stops.stopped_ms("imp_1")
    assert first is not None
    assert before <= first <= time.time_ns() // 1_000_000
    time.sleep(0.002)
    other.stops.stop("imp_1")
    assert mailboxes.stops.stopped_ms("imp_1") == first


def test_old_stops_are_forgotten(mailboxes: Exchange) -> None:
    mailboxes.stops.forget_older_than(timedelta(0))
    mailboxes.stops.stop("imp_1")
    mailboxes.stops.forget_older_than(timedelta(days=1))
    assert mailboxes.stops.stopped_ms("imp_1") is not None
    mailboxes.stops.forget_older_than(timedelta(seconds=-1))
    assert mailboxes.stops.stopped_ms("imp_1") is None


# Ends


def test_notices_are_taken_once(mailboxes: Exchange, other: Exchange) -> None:
    for notice in (ENDED, ENDED, RowsAged("print", 5)):
        mailboxes.ends.put(notice)
    assert sorted(other.ends.take(), key=repr) == [ENDED, RowsAged("print", 5)]
    assert list(other.ends.take()) == []


def test_a_notice_stays_until_its_reader_is_done(mailboxes: Exchange, other: Exchange) -> None:
    mailboxes.ends.put(ENDED)
    taken = other.ends.take()
    assert next(taken) == ENDED
    del taken
    assert list(other.ends.take()) == [ENDED], "the first reader failed"


def test_a_notice_that_comes_while_an_older_one_is_taken_is_not_lost(mailboxes: Exchange, other: Exchange) -> None:
    mailboxes.ends.put(RowsAged("print", 5))
    for notice in other.ends.take():
        assert notice == RowsAged("print", 5)
        mailboxes.ends.put(RowsAged("print", 6))
    assert list(other.ends.take()) == [RowsAged("print", 6)]


# Versions


def test_versions_are_the_last_that_were_written(mailboxes: Exchange, other: Exchange) -> None:
    assert (other.safe_version.read(), other.aged.last("acme", "notes")) == (None, 0)
    for version in (10, 9, 12):
        mailboxes.safe_version.write(version)
        mailboxes.aged.note("acme", "notes", version)
        assert (other.safe_version.read(), other.aged.last("acme", "notes")) == (version, version)
    assert other.aged.last("acme", "others") == 0


def test_a_reader_sees_whole_versions_only(mailboxes: Exchange, other: Exchange) -> None:
    mailboxes.safe_version.write(1_000_000)
    stopping = threading.Event()

    def write() -> None:
        while not stopping.is_set():
            mailboxes.safe_version.write(1_000_000)

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        assert {other.safe_version.read() for _ in range(500)} == {1_000_000}
    finally:
        stopping.set()
        for writer in writers:
            writer.join(10)


# The data plane and the client apps


def test_the_data_plane_says_when_it_is_ready(mailboxes: Exchange, other: Exchange) -> None:
    assert (other.data_plane.metrics_port(), other.data_plane.jvm()) == (None, None)
    mailboxes.data_plane.announce(4711)
    mailboxes.data_plane.note_jvm(Jvm(12, 3.5))
    assert (other.data_plane.metrics_port(), other.data_plane.jvm()) == (4711, Jvm(12, 3.5))
    for _ in range(2):
        other.data_plane.withdraw()
    assert mailboxes.data_plane.metrics_port() is None


def test_the_last_report_of_the_managers_counts(mailboxes: Exchange, other: Exchange) -> None:
    assert other.apps.last() is None
    report = AppsReport({"own_user": True}, "cgroups", "inotify", {"acme": {"state": "running"}})
    mailboxes.apps.report(report)
    found = other.apps.last()
    assert found == report
    assert found is not None
    assert 0 <= found.age_seconds < 60
    for _ in range(2):
        mailboxes.apps.withdraw()
    assert other.apps.last() is None


def test_a_run_that_is_asked_for_twice_is_one_request(mailboxes: Exchange, other: Exchange) -> None:
    assert other.apps.asked() == set()
    for _ in range(2):
        mailboxes.apps.ask("acme")
    assert other.apps.asked() == {"acme"}
    assert (other.apps.is_asked("acme"), other.apps.is_asked("other")) == (True, False)
    for _ in range(2):
        other.apps.clear_request("acme")
    assert mailboxes.apps.asked() == set()


def test_the_client_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_client_file(tmp_path)
    write_client_file(tmp_path, ClientFile("http://127.0.0.1:1", "mr_secret"))
    assert read_client_file(tmp_path) == ClientFile("http://127.0.0.1:1", "mr_secret")
    assert "mr_secret" not in repr(read_client_file(tmp_path))
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600]


# Keys of rules


def test_keys_of_rules_come_back_by_chunk(mailboxes: Exchange, other: Exchange) -> None:
    for chunk in (1, 0, 0):
        mailboxes.rule_keys.keep("imp_1", chunk, {"once": np.array([chunk], np.uint64)})
    mailboxes.rule_keys.keep("imp_2", 0, {})
    assert [keys.tolist() for keys in other.rule_keys.hashes("imp_1", "once")] == [[0], [1]]
    assert [keys.tolist() for keys in other.rule_keys.hashes("imp_2", "once")] == [[]]
    assert other.rule_keys.hashes("imp_3", "once") == []
    other.rule_keys.forget("imp_1")
    assert mailboxes.rule_keys.imports() == ["imp_2"]


# Keys of tenants


def test_of_many_who_make_a_data_key_one_wins(mailboxes: Exchange, other: Exchange) -> None:
    keys = mailboxes.keys
    assert (keys.has_any("acme"), keys.has("acme", "imp_1")) == (False, False)
    with pytest.raises(FileNotFoundError):
        keys.read("acme", "imp_1")
    assert (keys.create("acme", "imp_1", b"first"), other.keys.create("acme", "imp_1", b"second")) == (True, False)
    assert other.keys.read("acme", "imp_1") == b"first"
    other.keys.replace("acme", "imp_1", b"wrapped anew")
    assert (keys.read("acme", "imp_1"), list(keys.names("acme"))) == (b"wrapped anew", ["imp_1"])
    keys.drop("acme", "imp_1")
    assert (other.keys.has_any("acme"), list(other.keys.names("acme"))) == (True, [])


def test_a_destroyed_key_is_known_in_every_process(mailboxes: Exchange, other: Exchange) -> None:
    assert other.keys.destroyed_at("acme") == 0.0
    before = time.time()
    mailboxes.keys.mark_destroyed("acme")
    assert before <= other.keys.destroyed_at("acme") <= time.time()
    assert list(other.keys.names("acme")) == []


def test_one_keyring_serves_a_process(mailboxes: Exchange, other: Exchange) -> None:
    assert other.keyring(KEYS_HERE) is mailboxes.keyring(KEYS_HERE)


# Places and a tenant's files


def places_of(mailboxes: Exchange) -> Iterator[Path]:
    places = mailboxes.places
    yield from (places.table("acme", "notes"), places.errors("acme", "notes"), places.staged("acme", "notes"))
    yield places.copies("acme", "notes", "0a1b")


def test_everything_has_a_place_of_its_own(mailboxes: Exchange, other: Exchange) -> None:
    assert list(places_of(mailboxes)) == list(places_of(other))
    assert len(set(places_of(mailboxes))) == 4
    assert mailboxes.places.table_store("acme", "notes").root == mailboxes.places.table("acme", "notes")
    spool = mailboxes.places.spool()
    (spool / "half").touch()
    mailboxes.places.clear_spool()
    assert list(spool.iterdir()) == []


def test_a_tenants_files_are_counted_and_removed(mailboxes: Exchange, other: Exchange) -> None:
    for path in places_of(mailboxes):
        path.mkdir(parents=True)
        (path / "file").write_bytes(b"12345")
    mailboxes.app_folders("acme").make()
    mailboxes.apps.ask("acme")
    mailboxes.keys.create("acme", "imp_1", b"wrapped")
    assert mailboxes.places.error_tables("acme") == ["notes"]
    assert mailboxes.places.staged_tables() == [("acme", "notes")]
    assert other.tenant_files.stored_bytes("acme") == 10
    removed = dict(other.tenant_files.remove("acme"))
    assert removed["lake/acme"] == 5
    assert not any(path.exists() for path in places_of(mailboxes))
    assert (mailboxes.apps.asked(), mailboxes.keys.has_any("acme")) == (set(), False)
    assert other.tenant_files.remove("acme") == []
