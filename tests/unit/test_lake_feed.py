"""The change feed of a table: switched on and off, written once whatever is repeated or killed, cleaned by age, and shared
with other engines that write it too."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import deltalake
import polars as pl
import pyarrow as pa
import pytest

from millrace.lake import checkpointing, long_work
from millrace.lake.batch import WriteBatch
from millrace.lake.bounds import LogBounds
from millrace.lake.compact import MOST_SMALL_FILES
from millrace.lake.feed import CHANGES_FOLDER
from millrace.lake.log import load
from millrace.lake.long_work import listening
from millrace.lake.remote import RemoteStore
from millrace.lake.removal import delete_table
from millrace.lake.schema import DeletionVectors
from millrace.lake.sidecar import write_data_file
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.lake.vacuum import vacuum
from tests.support.feed_model import FeedModel, FeedRow, read_by_deltalake
from tests.support.feed_replay import changes_of, entry, newest_version, replayed
from tests.support.folder_objects import FolderObjects
from tests.support.foreign import change_metadata, give_features, last_action
from tests.support.lake import KEYED, RivalStore, apply_rows, arrow_rows, content, stage, stage_mixed, text_of
from tests.support.revisions import ID, Revisions, column, rows_of, write_under

FED = replace(KEYED, change_feed=True)
WEEK, NOW = timedelta(days=7), timedelta(0)
# `cdc` as a word of its own: random names may hold these letters.
WORDS = re.compile(r"\bcdc\b|ChangeData|changeData|changeFeed")
TEXT = column("text", ["null", "string"])


@pytest.fixture
def table(tmp_path: Path) -> LakeTable:
    """Six rows, of which one is replaced and one deleted."""
    made = LakeTable(Store(tmp_path), FED)
    apply_rows(made, [(key, 1) for key in range(6)])
    made.apply([stage_mixed(made.store, [(0, 2, False), (1, 2, True), (9, 2, False)])])
    return made


def named(root: Path) -> list[list[str]]:
    """The files of changes of each version."""
    return [
        [action["cdc"]["path"] for action in entry(root, version) if "cdc" in action]
        for version in range(newest_version(root) + 1)
    ]


def files_of_changes(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in (root / CHANGES_FOLDER).glob("*"))


def last_changes(root: Path) -> list[FeedRow]:
    newest = newest_version(root)
    return read_by_deltalake(root, newest, newest)


def row(version: int, change: str, key: int, at: int) -> FeedRow:
    return FeedRow(version, change, key, text_of(key, at), at)


def test_inserts_need_no_file_of_changes_and_updates_one(table: LakeTable) -> None:
    assert [len(paths) for paths in named(table.store.root)] == [0, 1]
    assert read_by_deltalake(table.store.root, 1, 1) == [
        row(1, "delete", 1, 1),
        row(1, "insert", 9, 2),
        row(1, "update_postimage", 0, 2),
        row(1, "update_preimage", 0, 1),
    ]


def test_a_table_without_the_feed_has_nothing_of_it(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(key, 1) for key in range(6)])
    assert last_action(tmp_path, "protocol") == {"minReaderVersion": 1, "minWriterVersion": 2}
    apply_rows(table, [(0, 2)])
    assert not (tmp_path / CHANGES_FOLDER).exists()
    for version in range(2):
        assert not WORDS.findall(json.dumps(entry(tmp_path, version)))


def test_the_feed_asks_nothing_of_those_who_only_read_the_table(tmp_path: Path) -> None:
    apply_rows(LakeTable(Store(tmp_path), FED), [(1, 1)])
    protocol = last_action(tmp_path, "protocol")
    assert (protocol["minReaderVersion"], protocol["minWriterVersion"]) == (1, 7)
    assert "changeDataFeed" in protocol["writerFeatures"]
    assert "readerFeatures" not in protocol


def test_it_is_switched_on_and_off_by_the_declaration(tmp_path: Path) -> None:
    revisions = Revisions()
    without = revisions.add(ID, TEXT)
    table = revisions.open(tmp_path)
    write_under(table, without, 1, {"id": 1, "text": "a"}, {"id": 2, "text": "a"})
    retention = last_action(tmp_path, "metaData")["configuration"]["delta.logRetentionDuration"]
    feeding = revisions.add(ID, TEXT, change_feed=True)
    write_under(table, feeding, 2, {"id": 1, "text": "b"})
    properties = last_action(tmp_path, "metaData")["configuration"]
    assert properties["delta.enableChangeDataFeed"] == "true"
    assert properties["delta.logRetentionDuration"] == "interval 168 hours"
    assert [(row.change, row.key, row.text) for row in last_changes(tmp_path)] == [
        ("update_postimage", 1, "b"),
        ("update_preimage", 1, "a"),
    ], "the version that switches it on belongs to the feed"
    write_under(table, without, 3, {"id": 2, "text": "late"})
    assert len(named(tmp_path)[-1]) == 1, "rows of an older revision change nothing about it"
    off = revisions.add(ID, TEXT)
    write_under(table, off, 4, {"id": 1, "text": "c"})
    assert named(tmp_path)[-1] == []
    properties = last_action(tmp_path, "metaData")["configuration"]
    assert properties["delta.enableChangeDataFeed"] == "false"
    assert properties["delta.logRetentionDuration"] == retention
    change_metadata(tmp_path, configuration={"delta.enableChangeDataFeed": "true"})
    write_under(table, off, 5, {"id": 1, "text": "d"})
    assert len(named(tmp_path)[-1]) == 1, "what another engine switches on stays on"
    assert rows_of(table) == [{"id": 1, "text": "d"}, {"id": 2, "text": "late"}]


def test_upkeep_that_began_before_the_feed_does_not_switch_it_off(table: LakeTable) -> None:
    stale = LakeTable(table.store, KEYED)
    for version in range(3, MOST_SMALL_FILES + 6):
        apply_rows(table, [(100 + version, version)])
    stale.maintain()
    apply_rows(table, [(0, 99)])
    assert len(named(table.store.root)[-1]) == 1


def test_compaction_changes_nothing_for_readers_of_the_feed(table: LakeTable) -> None:
    root, before = table.store.root, newest_version(table.store.root)
    for version in range(3, MOST_SMALL_FILES + 6):
        apply_rows(table, [(100 + version, version)])
    last = newest_version(root)
    table.maintain()
    assert newest_version(root) > last > before
    assert read_by_deltalake(root, last + 1, newest_version(root)) == []


def test_a_new_generation_deletes_every_row_that_was_left(tmp_path: Path) -> None:
    revisions = Revisions(change_feed=True)
    first = revisions.add(ID, TEXT)
    table = revisions.open(tmp_path)
    write_under(table, first, 1, *({"id": key, "text": "a"} for key in range(4)))
    write_under(table, first, 2, {"id": 0, "_deleted": True})
    second = revisions.add(column("id", "string"), TEXT, floor=10)
    table.prepare(second)
    assert [(change["id"], change["_change_type"]) for change in changes_of(tmp_path, 2)] == [
        (str(key), "delete") for key in (1, 2, 3)
    ]
    write_under(table, second, 11, {"id": "x", "text": "b"})
    assert [sum(rows.values()) for rows in replayed(tmp_path)] == [4, 3, 0, 1]


def test_a_truncation_of_whole_files_needs_no_file_of_changes(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), FED)
    apply_rows(table, [(1, 1), (2, 1)])
    table.apply([], floor=5)
    assert named(tmp_path) == [[], []]
    assert last_changes(tmp_path) == [row(1, "delete", 1, 1), row(1, "delete", 2, 1)]


def test_a_row_that_a_truncation_and_a_delete_remove_is_one(tmp_path: Path) -> None:
    """Each of them names the row. Two names for one row are not two rows."""
    table = LakeTable(Store(tmp_path), FED)
    apply_rows(table, [(1, 1), (2, 5)])
    table.apply([stage_mixed(table.store, [(1, 6, True)])], floor=3)
    assert [change["id"] for change in changes_of(tmp_path, 1)] == [1]
    assert last_changes(tmp_path) == [row(1, "delete", 1, 1)]


def test_what_comes_again_is_in_the_feed_once(table: LakeTable) -> None:
    staged = stage(table.store, [(0, 3), (20, 3)])
    table.apply([staged])
    version = newest_version(table.store.root)
    LakeTable(table.store, FED).apply([staged])
    table.maintain()
    table.apply([staged, stage(table.store, [(20, 3), (0, 3)], prefix="again")])
    assert read_by_deltalake(table.store.root, version, newest_version(table.store.root)) == [
        row(version, "insert", 20, 3),
        row(version, "update_postimage", 0, 3),
        row(version, "update_preimage", 0, 2),
    ]


def test_a_second_attempt_uses_the_file_of_the_first(table: LakeTable) -> None:
    root, before = table.store.root, files_of_changes(table.store.root)
    rival = LakeTable(Store(root), FED)
    overtaken = RivalStore(root, [lambda: apply_rows(rival, [(50, 3)])])
    apply_rows(LakeTable(overtaken, FED), [(0, 4)])
    assert len(files_of_changes(root)) == len(before) + 1
    assert last_changes(root) == [row(3, "update_postimage", 0, 4), row(3, "update_preimage", 0, 2)]


def test_a_second_attempt_after_a_rival_on_the_same_key_tells_what_it_found(table: LakeTable) -> None:
    root = table.store.root
    rival = LakeTable(Store(root), FED)
    overtaken = RivalStore(root, [lambda: apply_rows(rival, [(0, 3)])])
    apply_rows(LakeTable(overtaken, FED), [(0, 4)])
    assert read_by_deltalake(root, 2, 3) == [
        row(2, "update_postimage", 0, 3),
        row(2, "update_preimage", 0, 2),
        row(3, "update_postimage", 0, 4),
        row(3, "update_preimage", 0, 3),
    ]


KILLED = """
import os, signal, sys
from pathlib import Path
from millrace.lake.sidecar import write_data_file
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from tests.unit.test_lake_feed import FED
from tests.support.lake import apply_rows

class Dying(Store):
    def put_if_absent(self, name, data):
        if name.startswith("_delta_log/"):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().put_if_absent(name, data)

apply_rows(LakeTable(Dying(Path(sys.argv[1])), FED), [(0, 3)])
"""


def test_a_writer_killed_before_its_commit_leaves_a_file_that_the_vacuum_deletes(table: LakeTable) -> None:
    root, before = table.store.root, files_of_changes(table.store.root)
    repository = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", KILLED, str(root)], cwd=repository, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (newest_version(root), len(files_of_changes(root))) == (1, len(before) + 1)
    (orphan,) = set(files_of_changes(root)) - set(before)
    apply_rows(table, [(0, 3)])
    assert last_changes(root) == [row(2, "update_postimage", 0, 3), row(2, "update_preimage", 0, 2)]
    assert vacuum(table.store, WEEK, WEEK) == [], "it may belong to a commit that is under way"
    grow_old(root / orphan)
    assert vacuum(table.store, WEEK, WEEK) == [orphan]


def grow_old(path: Path, age: timedelta = WEEK) -> None:
    then = time.time() - (age + timedelta(hours=1)).total_seconds()
    os.utime(path, (then, then))


def test_changes_are_kept_for_a_week(table: LakeTable) -> None:
    root, (old,) = table.store.root, files_of_changes(table.store.root)
    apply_rows(table, [(0, 3)])
    assert vacuum(table.store, WEEK, WEEK) == []
    grow_old(root / old)
    assert vacuum(table.store, WEEK, WEEK) == [old]
    assert len(files_of_changes(root)) == 1
    assert last_changes(root) == [row(2, "update_postimage", 0, 3), row(2, "update_preimage", 0, 2)]
    assert content(table) == [(0, 3), (2, 1), (3, 1), (4, 1), (5, 1), (9, 2)]


def test_the_log_is_kept_as_long_as_the_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointing, "CHECKPOINT_INTERVAL", 2)
    monkeypatch.setattr(checkpointing, "CHECKPOINTS_PER_CLEANING", 2)
    plain, fed = LakeTable(Store(tmp_path / "plain"), KEYED), LakeTable(Store(tmp_path / "fed"), FED)

    def oldest_after_more_commits(table: LakeTable, first: int) -> int:
        for version in range(first, first + 8):
            apply_rows(table, [(version, version)])
        return min(int(path.stem) for path in (table.store.root / "_delta_log").glob("*.json"))

    assert oldest_after_more_commits(plain, 0) == oldest_after_more_commits(fed, 0) == 0
    for days, is_kept in ((1, True), (7, False)):
        for path in tmp_path.glob("*/_delta_log/*"):
            grow_old(path, timedelta(days=days))
        assert oldest_after_more_commits(plain, 8 * days) > 0
        assert (oldest_after_more_commits(fed, 8 * days) == 0) == is_kept


def test_deleting_a_table_deletes_its_changes(table: LakeTable) -> None:
    delete_table(table.store)
    assert files_of_changes(table.store.root) == []


@pytest.mark.parametrize("mode", ["auto", "never"])
def test_another_engine_writes_the_feed_too(tmp_path: Path, mode: DeletionVectors) -> None:
    model, table = FeedModel(), LakeTable(Store(tmp_path), replace(FED, deletion_vectors=mode))

    def imported(version: int, *keys: int) -> None:
        apply_rows(table, [(key, version) for key in keys])
        model.imported(version, {key: text_of(key, version) for key in keys})
        model.committed(newest_version(tmp_path))

    def theirs() -> deltalake.DeltaTable:
        return deltalake.DeltaTable(str(tmp_path))

    imported(1, *range(8))
    theirs().update(updates={"text": "'theirs'"}, predicate="id = 3")
    model.rows[3] = 1, "theirs"
    model.committed(newest_version(tmp_path))
    theirs().delete("id = 4")
    del model.rows[4]
    model.committed(newest_version(tmp_path))
    merged = arrow_rows([(5, 7), (30, 7)])
    theirs().merge(merged, "s.id = t.id", "s", "t").when_matched_update_all().when_not_matched_insert_all().execute()
    model.rows |= {5: (7, text_of(5, 7)), 30: (7, text_of(30, 7))}
    model.committed(newest_version(tmp_path))
    imported(8, 3, 5, 40)
    last = newest_version(tmp_path)
    for first in range(last + 1):
        for end in range(first, last + 1):
            assert read_by_deltalake(tmp_path, first, end) == model.between(first, end), (first, end)


def test_a_feed_that_another_engine_has_switched_on_is_written(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(1, 1), (2, 1)])
    give_features(tmp_path, "changeDataFeed")
    change_metadata(tmp_path, configuration={"delta.enableChangeDataFeed": "true"})
    apply_rows(table, [(1, 2)])
    assert last_changes(tmp_path) == [row(3, "update_postimage", 1, 2), row(3, "update_preimage", 1, 1)]
    table.maintain()
    apply_rows(table, [(1, 3)])
    assert last_action(tmp_path, "metaData")["configuration"]["delta.enableChangeDataFeed"] == "true"


def test_changes_of_columns_that_rewrite_files_are_updates(tmp_path: Path) -> None:
    revisions = Revisions(change_feed=True)
    first = revisions.add(ID, TEXT)
    table = revisions.open(tmp_path)
    write_under(table, first, 1, {"id": 1, "text": "a"}, {"id": 2, "text": "b"}, {"id": 3, "text": "c"})
    second = revisions.add(ID, TEXT, column("n", "int", default=7))
    write_under(table, second, 2, {"id": 1, "text": "z", "n": 1}, {"id": 2, "_deleted": True})
    found = sorted(
        (change["id"], change["_change_type"], change["text"], change["n"]) for change in changes_of(tmp_path, 1)
    )
    assert found == [
        (1, "update_postimage", "z", 1),
        (1, "update_preimage", "a", None),
        (2, "delete", "b", None),
        (3, "update_postimage", "c", 7),
        (3, "update_preimage", "c", None),
    ]


def test_a_large_change_is_told_completely(tmp_path: Path) -> None:
    """More rows than a row group has, and rows spread over all groups."""
    table = LakeTable(Store(tmp_path), FED)
    count = 300_000

    def rows(keys: range, version: int) -> pa.Table:
        ids = pa.array(keys, pa.int64())
        columns = {"id": ids, "text": pa.repeat(str(version), len(ids)), "_version": pa.repeat(version, len(ids))}
        return pa.table({**columns, "_import": pa.repeat("i", len(ids)), "_row": ids})

    table.apply([write_data_file(table.store, rows(range(count), 1), ("id",), "part")])
    table.apply([write_data_file(table.store, rows(range(0, count, 2), 2), ("id",), "part")])
    changes = pl.DataFrame(deltalake.DeltaTable(str(tmp_path)).load_cdf(starting_version=1).read_all())
    for change, text in (("update_preimage", "1"), ("update_postimage", "2")):
        part = changes.filter(pl.col("_change_type") == change)
        assert part["id"].sort().to_list() == list(range(0, count, 2))
        assert part["text"].unique().to_list() == [text]
    assert load(table.store).live_rows == count
    table.write(WriteBatch(floor=2))
    assert load(table.store).live_rows == 0


class BoundedStore(Store):
    """Decodes data files in bounded processes, as for tables in a tenant's own bucket."""

    bounds = LogBounds(rows_apart=True)


def test_old_rows_are_read_in_bounded_processes_where_files_are_not_trusted(table: LakeTable) -> None:
    bounded = LakeTable(BoundedStore(table.store.root), FED)
    bounded.apply([stage_mixed(table.store, [(0, 3, False), (2, 3, True), (30, 3, False)])])
    assert last_changes(table.store.root) == [
        row(2, "delete", 2, 1),
        row(2, "insert", 30, 3),
        row(2, "update_postimage", 0, 3),
        row(2, "update_preimage", 0, 2),
    ]


def test_the_feed_of_a_remote_table_is_in_the_remote_store(tmp_path: Path) -> None:
    bucket, copies = tmp_path / "bucket", tmp_path / "copies"
    store = RemoteStore(copies, FolderObjects(bucket))
    table = LakeTable(store, FED)
    apply_rows(table, [(key, 1) for key in range(4)])
    apply_rows(table, [(1, 2)])
    assert last_changes(bucket) == [row(1, "update_postimage", 1, 2), row(1, "update_preimage", 1, 1)]
    (written,) = files_of_changes(bucket)
    store.trim(0, NOW)
    assert files_of_changes(copies) == [], "nobody reads the copy"
    grow_old(bucket / written)
    assert vacuum(store, WEEK, WEEK) == [written]
    assert files_of_changes(bucket) == []


def test_whoever_waits_for_a_truncation_is_told_that_its_changes_take_long(
    table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_work, "LONG_ROWS", 5)
    told: list[str] = []
    with listening(lambda: told.append("long")):
        apply_rows(table, [(0, 3)])
        assert told == []
        table.apply([], floor=9)
    assert told == ["long"]
