"""Tables that other engines changed: what we can go on with goes on, the rest is refused in words that say what to do."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap

from millrace.lake.actions import DeletionVector
from millrace.lake.compact import MOST_SMALL_FILES
from millrace.lake.deletion_vectors import load_vector, store_vectors, vector_file
from millrace.lake.foreign import refuse_unreadable
from millrace.lake.log import load
from millrace.lake.schema import DeletionVectors, TableSpec
from millrace.lake.sidecar import write_data_file
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.lake.vacuum import vacuum
from millrace.model.errors import Corrupt, Unavailable
from tests.support.foreign import change_metadata, commit, fields_of, file_of, give_features, last_action
from tests.support.lake import KEYED, KEYLESS, apply_rows, arrow_rows, content, read_by_deltalake, stage, stage_chunks
from tests.support.revisions import ID, Revisions, column, rows_of, write_under

TEXT = column("text", ["null", "string"])
NUMBER = column("n", ["null", "int"])


def declared(root: Path, *columns: Any, **options: Any) -> tuple[Revisions, LakeTable]:
    revisions = Revisions(**options)
    first = revisions.add(ID, *columns)
    table = revisions.open(root)
    write_under(table, first, 1, {"id": 1}, {"id": 2})
    return revisions, table


def refusal(revisions: Revisions, table: LakeTable) -> Unavailable:
    assert revisions.newest is not None
    before = load(table.store).version
    with pytest.raises(Unavailable) as refused:
        write_under(table, revisions.newest, 9, {"id": 1})
    assert load(table.store).version == before
    assert refused.value.remedy
    return refused.value


USED: list[tuple[str, dict[str, Any], str]] = [
    ("checkConstraints", {"configuration": {"delta.constraints.positive": "id > 0"}}, "DROP CONSTRAINT"),
    ("columnMapping", {"configuration": {"delta.columnMapping.mode": "name"}}, "RESTORE"),
    ("invariants", {"marks": {"delta.invariants": '{"expression":{"expression":"id > 0"}}'}}, "RESTORE"),
    ("generatedColumns", {"marks": {"delta.generationExpression": "id + 1"}}, "RESTORE"),
    ("identityColumns", {"marks": {"delta.identity.start": 1}}, "RESTORE"),
    ("allowColumnDefaults", {"marks": {"CURRENT_DEFAULT": "7"}}, "DROP DEFAULT"),
    ("variantType", {"type": "variant"}, "RESTORE"),
    ("v2Checkpoint", {"configuration": {"delta.checkpointPolicy": "v2"}}, "'classic'"),
    ("typeWidening", {"marks": {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]}}, "RESTORE"),
]


@pytest.mark.parametrize(("feature", "use", "remedy"), USED, ids=[feature for feature, _, _ in USED])
def test_a_feature_is_no_obstacle_until_it_is_used(
    tmp_path: Path, feature: str, use: dict[str, Any], remedy: str
) -> None:
    revisions, table = declared(tmp_path, TEXT)
    assert revisions.newest is not None
    give_features(tmp_path, feature)
    write_under(table, revisions.newest, 2, {"id": 1, "text": "x"})
    marks = use.get("marks", {})
    fields = [{**field, "metadata": marks if field["name"] == "text" else {}} for field in fields_of(tmp_path)]
    if "type" in use:
        fields.append({"name": "more", "type": use["type"], "nullable": True, "metadata": {}})
    change_metadata(tmp_path, configuration=use.get("configuration", {}), schema=fields)
    refused = refusal(revisions, table)
    assert feature in refused.message
    assert remedy in refused.remedy
    with pytest.raises(Unavailable, match=feature):
        table.maintain()


@pytest.mark.parametrize("writer", [3, 4, 5, 6])
def test_older_writer_versions_are_no_obstacle(tmp_path: Path, writer: int) -> None:
    revisions, table = declared(tmp_path, TEXT)
    assert revisions.newest is not None
    commit(tmp_path, {"protocol": {"minReaderVersion": 2 if writer > 4 else 1, "minWriterVersion": writer}})
    write_under(table, revisions.newest, 2, {"id": 1, "text": "x"})
    listed = last_action(tmp_path, "protocol")
    assert {"deletionVectors", "appendOnly", "invariants", "checkConstraints"} <= set(listed["writerFeatures"])
    assert ("columnMapping" in listed["readerFeatures"]) == (writer > 4)
    assert read_by_deltalake(tmp_path) == [(1, 2), (2, 1)]


def test_an_unknown_feature_is_refused_and_a_new_generation_begins_without_it(tmp_path: Path) -> None:
    revisions, table = declared(tmp_path, TEXT)
    give_features(tmp_path, "rowTracking", "domainMetadata")
    refused = refusal(revisions, table)
    assert "domainMetadata" in refused.message
    # RESTORE would leave it there.
    assert "DROP FEATURE" in refused.remedy
    again = revisions.add(ID, TEXT, floor=10)
    write_under(table, again, 11, {"id": 5})
    assert read_by_deltalake(tmp_path) == [(5, 11)]


def test_a_partitioned_table_is_refused_and_a_new_generation_begins_without_partitions(tmp_path: Path) -> None:
    revisions, table = declared(tmp_path, TEXT)
    change_metadata(tmp_path, partitionColumns=["text"])
    assert "partitioned table 't' by text" in refusal(revisions, table).message
    with pytest.raises(Unavailable, match="partitioned by text"):
        refuse_unreadable(load(table.store), "acme.t")
    again = revisions.add(ID, TEXT, floor=10)
    write_under(table, again, 11, {"id": 5})
    assert read_by_deltalake(tmp_path) == [(5, 11)]
    refuse_unreadable(load(table.store), "acme.t")


def test_column_mapping_is_refused_for_readers_of_the_files(tmp_path: Path) -> None:
    _, table = declared(tmp_path, TEXT)
    give_features(tmp_path, readers=("columnMapping",))
    refuse_unreadable(load(table.store), "acme.t")
    change_metadata(tmp_path, configuration={"delta.columnMapping.mode": "name"})
    with pytest.raises(Unavailable, match="columnMapping"):
        refuse_unreadable(load(table.store), "acme.t")


def test_deletion_vectors_that_deltalake_switches_on_are_no_obstacle(tmp_path: Path) -> None:
    """It lists the feature variantType with them."""
    revisions, table = declared(tmp_path, TEXT, column("variant", ["null", "string"]))
    assert revisions.newest is not None
    deltalake.DeltaTable(str(tmp_path)).alter.set_table_properties({"delta.enableDeletionVectors": "true"})
    write_under(table, revisions.newest, 2, {"id": 1, "text": "x"})
    assert read_by_deltalake(tmp_path) == [(1, 2), (2, 1)]
    refuse_unreadable(load(table.store), "acme.t")


def test_a_feature_that_readers_must_know_is_refused_for_readers_of_the_files(tmp_path: Path) -> None:
    _, table = declared(tmp_path, TEXT)
    give_features(tmp_path, "rowTracking")
    refuse_unreadable(load(table.store), "acme.t")
    give_features(tmp_path, readers=("madeUp",))
    with pytest.raises(Unavailable, match="madeUp"):
        refuse_unreadable(load(table.store), "acme.t")


def test_files_of_a_table_with_an_unknown_feature_are_not_deleted(tmp_path: Path) -> None:
    _, table = declared(tmp_path, TEXT)
    (tmp_path / "unnamed.parquet").write_bytes(b"named in a way that is not known here")
    give_features(tmp_path, "madeUp")
    with pytest.raises(Unavailable, match="features that are not known"):
        vacuum(table.store, timedelta(0), timedelta(0))
    assert (tmp_path / "unnamed.parquet").exists()


def test_a_checkpoint_that_lists_files_elsewhere_is_stepped_over(tmp_path: Path) -> None:
    """Checkpoints of Delta's version 2 may have the name of a classic one."""
    revisions, table = declared(tmp_path, TEXT)
    assert revisions.newest is not None
    for version in range(2, 23):
        write_under(table, revisions.newest, version, {"id": version})
    before = load(table.store)
    checkpoint = tmp_path / "_delta_log" / f"{20:020}.checkpoint.parquet"
    rows = pq.read_table(checkpoint).filter(pc.is_null(pc.field("add")))
    kind = pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())])
    elsewhere = [{"path": "x.parquet", "sizeInBytes": 1, "modificationTime": 1}] + [None] * (rows.num_rows - 1)
    pq.write_table(rows.append_column("sidecar", pa.array(elsewhere, kind)), checkpoint)
    found = load(table.store)
    assert found.files == before.files
    assert found.damaged == (f"_delta_log/{checkpoint.name}",)
    (tmp_path / "_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(Corrupt, match="version 2, which lists files elsewhere"):
        load(table.store)


STATES = [
    ("definition", "../../other"), ("definition", ""), ("key", "{}"), ("key", "[1]"), ("tombstones", "[1]"),
    ("tombstones", "x"), ("floor", "x"), ("floor", "1" + "0" * 30), ("floor", "1_0"), ("settled", "9223372036854775808"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), STATES)
def test_a_damaged_state_is_refused_in_words(tmp_path: Path, name: str, value: str) -> None:
    revisions, table = declared(tmp_path, TEXT)
    assert revisions.newest is not None
    change_metadata(tmp_path, configuration={f"millrace.{name}": value})
    with pytest.raises(Corrupt, match="configuration of table 't' is damaged") as refused:
        write_under(table, revisions.newest, 9, {"id": 1})
    assert "millrace." in refused.value.remedy


@pytest.mark.parametrize(
    "changes",
    [{"createdTime": "today"}, {"name": 5}, {"partitionColumns": "id"}, {"partitionColumns": [5]}],
    ids=["created", "name", "text", "number"],
)
def test_metadata_of_wrong_types_is_refused_with_the_name_of_its_entry(tmp_path: Path, changes: Any) -> None:
    _, table = declared(tmp_path, TEXT)
    change_metadata(tmp_path, **changes)
    with pytest.raises(Corrupt, match=r"in _delta_log/00000000000000000001\.json"):
        table.snapshot()


def test_a_table_that_is_append_only_takes_new_rows_and_refuses_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    revisions, table = declared(tmp_path, TEXT)
    assert revisions.newest is not None
    change_metadata(tmp_path, configuration={"delta.appendOnly": "true"})
    write_under(table, revisions.newest, 2, {"id": 3})
    refused = refusal(revisions, table)
    assert "delta.appendOnly" in refused.message
    assert "UNSET" in refused.remedy
    monkeypatch.setattr("millrace.lake.compact.MOST_SMALL_FILES", 0)
    table.maintain()
    assert len(table.snapshot().files) == 1
    change_metadata(tmp_path, configuration={"delta.appendOnly": "false"})
    write_under(table, revisions.newest, 9, {"id": 1, "text": "x"})
    assert len(rows_of(table)) == 3


SHAPES: list[tuple[Any, str]] = [
    (lambda fields: [field for field in fields if field["name"] != "n"], "column 'n' is gone"),
    (
        lambda fields: [{**f, "type": "long"} if f["name"] == "n" else f for f in fields],
        "column 'n' is long, not integer",
    ),
    (lambda fields: [{**f, "nullable": f["name"] != "n"} for f in fields], "column 'n' may not be null"),
    (lambda fields: [field for field in fields if field["name"] != "_version"], "column '_version' is gone"),
]


@pytest.mark.parametrize(("change", "words"), SHAPES, ids=["gone", "type", "null", "version"])
def test_columns_that_another_engine_changed_are_refused(tmp_path: Path, change: Any, words: str) -> None:
    revisions, table = declared(tmp_path, NUMBER)
    change_metadata(tmp_path, schema=change(fields_of(tmp_path)))
    assert words in refusal(revisions, table).message


def test_comments_and_required_columns_are_no_obstacle(tmp_path: Path) -> None:
    revisions, table = declared(tmp_path, NUMBER)
    assert revisions.newest is not None
    fields = [{**f, "nullable": f["name"] != "id", "metadata": {"comment": "x"}} for f in fields_of(tmp_path)]
    change_metadata(tmp_path, schema=fields)
    write_under(table, revisions.newest, 2, {"id": 1, "n": 7})
    assert rows_of(table)[0] == {"id": 1, "n": 7}


@pytest.mark.parametrize("mode", ["auto", "never"])
def test_a_column_that_another_engine_added_stays_with_its_cells(tmp_path: Path, mode: str) -> None:
    revisions, table = declared(tmp_path, NUMBER, deletion_vectors=mode)
    first = revisions.newest
    assert first is not None
    score = {"name": "score", "type": "double", "nullable": True, "metadata": {}}
    change_metadata(tmp_path, schema=[*fields_of(tmp_path), score])
    own = {"_version": pa.array([2, 2]), "_import": pa.array(["i", "i"]), "_row": pa.array([1, 2])}
    rows = pa.table({"id": [3, 4], "n": pa.array([5, 6], pa.int32()), "score": [0.5, 0.25], **own})
    commit(tmp_path, file_of(tmp_path, rows))
    write_under(table, first, 3, {"id": 3, "n": 7})
    second = revisions.add(ID, column("n", ["null", "long"]), TEXT)
    table.prepare(second)
    write_under(table, second, 4, {"id": 1, "text": "x"})
    assert [(row["id"], row["n"], row["score"]) for row in rows_of(table)] == [
        (1, None, None), (2, None, None), (3, 7, None), (4, 6, 0.25),
    ]  # fmt: skip
    assert pa.table(deltalake.DeltaTable(str(tmp_path)).scan().read_all())["score"].to_pylist().count(0.25) == 1


@pytest.mark.parametrize("mode", ["auto", "never"])
@pytest.mark.parametrize("name", ["score", "Score"])
def test_a_column_that_another_engine_filled_keeps_its_cells_when_it_is_declared(
    tmp_path: Path, mode: str, name: str
) -> None:
    revisions, table = declared(tmp_path, deletion_vectors=mode)
    theirs = pa.table({"id": pa.array([5, 6, 7], pa.int64()), name: [0.5, 0.25, None]})
    deltalake.write_deltalake(str(tmp_path), theirs, mode="append", schema_mode="merge")
    second = revisions.add(ID, column("score", ["double", "null"], default=2.0))
    table.prepare(second)
    write_under(table, second, 4, {"id": 5, "score": 1.5})
    expected = [(1, 2.0), (2, 2.0), (5, 1.5), (6, 0.25), (7, 2.0)]
    assert [(row["id"], row["score"]) for row in rows_of(table)] == expected
    rows = pa.table(deltalake.DeltaTable(str(tmp_path)).scan().read_all())
    assert sorted(zip(rows["id"].to_pylist(), rows["score"].to_pylist(), strict=True)) == expected


def test_cells_of_another_type_than_the_declaration_has_are_not_lost(tmp_path: Path) -> None:
    revisions, table = declared(tmp_path)
    theirs = pa.table({"id": pa.array([5, 6], pa.int64()), "score": [0.5, 0.25]})
    deltalake.write_deltalake(str(tmp_path), theirs, mode="append", schema_mode="merge")
    second = revisions.add(ID, column("score", ["null", "string"], default=None))
    with pytest.raises(Unavailable, match="filled column 'score' of table 't', as double") as refused:
        table.prepare(second)
    assert "SET score = NULL" in refused.value.remedy
    deltalake.DeltaTable(str(tmp_path)).update(updates={"score": "NULL"})
    write_under(table, second, 4, {"id": 5, "score": "x"})
    assert [(row["id"], row["score"]) for row in rows_of(table)] == [(1, None), (2, None), (5, "x"), (6, None)]


def test_a_feed_with_a_column_of_its_own_name_is_refused(tmp_path: Path) -> None:
    """No reader could read the changes."""
    revisions, table = declared(tmp_path, column("_Change_Type", ["null", "string"]))
    assert revisions.newest is not None
    change_metadata(tmp_path, configuration={"delta.enableChangeDataFeed": "true"})
    refused = refusal(revisions, table)
    assert "'_Change_Type'" in refused.message
    assert "'delta.enableChangeDataFeed' = 'false'" in refused.remedy
    change_metadata(tmp_path, configuration={"delta.enableChangeDataFeed": "false"})
    write_under(table, revisions.newest, 9, {"id": 1})


def test_a_file_outside_of_the_folder_is_refused(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "t", tmp_path / "other"
    elsewhere.mkdir()
    revisions, table = declared(root, TEXT)
    added = file_of(elsewhere, pa.table({"id": [7]}))
    commit(root, {"add": {**added["add"], "path": f"file://{elsewhere}/{added['add']['path']}"}})
    refused = refusal(revisions, table)
    assert "outside its folder" in refused.message


def test_a_vector_by_its_absolute_path_is_read_within_the_folder_only(tmp_path: Path) -> None:
    store = Store(tmp_path / "t")
    written = store_vectors(store, {"a": BitMap([1, 5])})["a"]
    name = vector_file(store, written) or ""
    for location in (store.path(name), f"file://{store.path(name)}", f"file:{store.path(name)}"):
        vector = DeletionVector("p", location, written.offset, written.size, written.cardinality)
        assert list(load_vector(store, vector)) == [1, 5]
        assert vector_file(store, vector) == name
    outside = tmp_path / "secret.bin"
    outside.write_bytes(store.read(name))
    for location in (str(outside), f"file://{store.root}/../secret.bin"):
        with pytest.raises(Corrupt, match="not in the table's folder"):
            load_vector(store, DeletionVector("p", location, written.offset, written.size, written.cardinality))


def test_rows_without_a_chunk_in_a_table_without_a_key(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYLESS)
    table.apply([stage_chunks(table.store, {"i/0": [(1, 1), (2, 1)]})])
    rows = pa.table({"id": pa.array([3], pa.int64()), "text": pa.array(["3 at None"])})
    commit(tmp_path, file_of(tmp_path, rows))
    table.apply([stage_chunks(table.store, {"i/0": [(1, 1), (2, 1)], "i/1": [(4, 2)]}, prefix="again")])
    assert sorted(read_by_deltalake(tmp_path), key=str) == [(1, 1), (2, 1), (3, None), (4, 2)]


def test_deltalake_updates_deletes_and_merges_between_our_commits(tmp_path: Path) -> None:
    spec = TableSpec("t", pa.schema([("id", pa.string()), ("text", pa.string())]), ("id",), "never")
    table = LakeTable(Store(tmp_path), spec)

    def put(version: int, *keys: str) -> None:
        own = {"_version": pa.array([version] * len(keys)), "_import": ["i"] * len(keys), "_row": [1] * len(keys)}
        rows = pa.table({"id": list(keys), "text": [f"{key} at {version}" for key in keys], **own})
        table.apply([write_data_file(table.store, rows, spec.key, "part")])

    put(1, *"abcdef")
    deltalake.DeltaTable(str(tmp_path)).update(predicate="id = 'a'", updates={"text": "'theirs'"})
    put(2, "b")
    deltalake.DeltaTable(str(tmp_path)).delete("id = 'c'")
    put(3, "d", "c")
    source = pa.table({"id": ["e", "z"], "text": ["merged", "added"]})
    (
        deltalake.DeltaTable(str(tmp_path))
        .merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        .when_matched_update({"text": "s.text"})
        .when_not_matched_insert({"id": "s.id", "text": "s.text"})
        .execute()
    )
    put(4, "f", "z")
    deltalake.DeltaTable(str(tmp_path)).optimize.compact()
    put(5, "a")
    rows = pa.table(deltalake.DeltaTable(str(tmp_path)).scan().read_all())
    assert dict(zip(rows["id"].to_pylist(), rows["text"].to_pylist(), strict=True)) == {
        "a": "a at 5", "b": "b at 2", "c": "c at 3", "d": "d at 3", "e": "merged", "f": "f at 4", "z": "z at 4",
    }  # fmt: skip
    assert rows.num_rows == 7


@pytest.mark.parametrize("is_marked", [False, True])
@pytest.mark.parametrize("vectors", ["never", "auto"])
def test_a_retry_brings_no_row_back_that_another_engine_has_deleted(
    tmp_path: Path, vectors: DeletionVectors, is_marked: bool
) -> None:
    """`is_marked`: the file has a deletion vector, or was rewritten, when the other engine removes it."""
    spec = replace(KEYED, deletion_vectors=vectors)
    table = LakeTable(Store(tmp_path), spec)
    staged = stage(table.store, [(1, 1), (2, 1), (3, 1)])
    table.apply([staged])
    apply_rows(table, [(3 if is_marked else 4, 2)])
    expected = [row for row in read_by_deltalake(tmp_path) if row != (1, 1)]
    deltalake.DeltaTable(str(tmp_path)).delete("id = 1")
    before = load(table.store)
    assert table.apply([staged]) == before
    deltalake.DeltaTable(str(tmp_path)).create_checkpoint()
    for path in (tmp_path / "_delta_log").glob("*.json"):
        if int(path.stem) < before.version:
            path.unlink()
    assert LakeTable(Store(tmp_path), spec).apply([staged]) == before
    assert read_by_deltalake(tmp_path) == expected
    apply_rows(table, [(1, 2)])
    assert read_by_deltalake(tmp_path) == [(1, 2), *expected]


@pytest.mark.parametrize("change", ["delete", "update", "merge", "optimize"])
def test_another_engine_that_planned_before_a_compaction_does_not_commit_against_it(
    tmp_path: Path, change: str
) -> None:
    table = LakeTable(Store(tmp_path), replace(KEYED, deletion_vectors="never"))
    for version in range(MOST_SMALL_FILES + 1):
        apply_rows(table, [(version, version)])
    other, before = deltalake.DeltaTable(str(tmp_path)), read_by_deltalake(tmp_path)
    table.maintain()
    assert len(table.snapshot().files) == 1
    with pytest.raises(deltalake.exceptions.CommitFailedError, match="Metadata changed"):
        foreign_change(other, change)
    assert read_by_deltalake(tmp_path) == content(table) == before
    foreign_change(deltalake.DeltaTable(str(tmp_path)), change)
    apply_rows(table, [(1, 100)])
    keys = [key for key, _ in read_by_deltalake(tmp_path)]
    assert len(keys) == len(set(keys))


def foreign_change(table: deltalake.DeltaTable, change: str) -> None:
    if change == "delete":
        table.delete("id = 1")
    elif change == "update":
        table.update(updates={"text": "'1 at 1'"}, predicate="id = 1")
    elif change == "merge":
        rows = arrow_rows([(1, 1), (999, 1)])
        merge = table.merge(rows, "s.id = t.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    else:
        table.optimize.compact()
