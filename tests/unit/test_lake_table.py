"""The newest row of each key wins, in every version, whoever writes when; rows without a key are appended once."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from millrace.lake.log import load
from millrace.lake.read import live_files, scan
from millrace.lake.schema import TableSpec
from millrace.lake.sidecar import StagedChunk, StagedFile, write_data_file
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.model.errors import Clash, Corrupt, Invalid, Unavailable
from tests.support.lake import (
    KEYED,
    KEYLESS,
    SCHEMA,
    RivalStore,
    apply_rows,
    arrow_rows,
    assert_keys_once_in_every_version,
    content,
    newest,
    stage,
    stage_chunks,
)

NEVER = replace(KEYED, deletion_vectors="never")


@pytest.mark.parametrize("spec", [KEYED, NEVER], ids=["auto", "never"])
def test_the_greatest_version_wins_in_whatever_order_it_comes(tmp_path: Path, spec: TableSpec) -> None:
    table = LakeTable(Store(tmp_path), spec)
    batches = [[(key, version) for key in range(version, 20)] for version in (5, 9, 2, 7)]
    for rows in batches:
        apply_rows(table, rows)
    assert content(table) == newest(row for rows in batches for row in rows)
    assert_keys_once_in_every_version(table)


def test_files_applied_together_are_judged_by_version_not_by_their_order(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(1, 9), (2, 3), (3, 4)], [(1, 3), (2, 9), (3, 5)], [(1, 5), (2, 5), (3, 3)])
    assert content(table) == [(1, 9), (2, 9), (3, 5)]


def test_of_two_rows_in_one_file_the_last_wins_and_the_table_stays_plain(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    rows = arrow_rows([(1, 5), (2, 5), (1, 5), (1, 3)])
    chunks = [StagedChunk("a", 0, 2, 5), StagedChunk("b", 2, 2, 5)]
    staged = write_data_file(table.store, rows, ("id",), "part", chunks)
    assert [(chunk.first_position, chunk.rows) for chunk in staged.chunks] == [(0, 1), (1, 1)]
    table.apply([staged])
    live = scan(table.store, table.snapshot(), ["id", "_row"]).to_pylist()
    assert live == [{"id": 2, "_row": 2}, {"id": 1, "_row": 3}]
    assert table.snapshot().protocol.reader == 1


def test_a_replay_changes_nothing_and_commits_nothing(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    first, second = stage(table.store, [(1, 1), (2, 1)]), stage(table.store, [(2, 2), (3, 2)])
    other_split = stage(table.store, [(1, 1), (2, 1), (2, 2), (3, 2)], prefix="other")
    table.apply([first])
    done = table.apply([second, second])
    assert (done.version, done.live_rows) == (1, 3)
    assert table.apply([second, first, other_split]) == done
    assert content(table) == [(1, 1), (2, 2), (3, 2)]


def test_a_file_whose_rows_are_all_beaten_leaves_the_table(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(1, 1), (2, 1)])
    apply_rows(table, [(1, 2), (2, 2)])
    assert len(table.snapshot().files) == 1
    assert table.snapshot().protocol.reader == 1, "no deletion vector was needed"


def test_deletion_vectors_are_switched_on_by_the_first_overwrite(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(1, 1), (2, 1)])
    apply_rows(table, [(3, 2)])
    assert (table.snapshot().protocol.reader, table.snapshot().protocol.writer) == (1, 2)
    apply_rows(table, [(1, 3)])
    snapshot = load(table.store)
    assert (snapshot.protocol.reader, snapshot.protocol.writer) == (3, 7)
    assert snapshot.protocol.features == {"deletionVectors", "appendOnly", "invariants"}
    dead = [file.dead.tolist() for file in live_files(table.store, snapshot) if file.dead is not None]
    assert dead == [[0]]


def test_mode_never_rewrites_and_stays_plain(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), NEVER)
    apply_rows(table, [(key, 1) for key in range(10)])
    apply_rows(table, [(3, 2), (11, 2)])
    apply_rows(table, [(3, 1), (12, 1)])
    assert content(table) == newest([*((key, 1) for key in range(10)), (3, 2), (11, 2), (12, 1)])
    assert table.snapshot().protocol.reader == 1
    assert all(file.deletion_vector is None for file in table.snapshot().files.values())


@pytest.mark.parametrize("spec", [KEYED, NEVER], ids=["auto", "never"])
def test_a_writer_that_is_overtaken_plans_again(tmp_path: Path, spec: TableSpec) -> None:
    rival = LakeTable(Store(tmp_path), spec)
    rivals = [
        lambda: apply_rows(rival, [(1, 7), (2, 7)]),
        lambda: apply_rows(rival, [(2, 3), (3, 9)]),
    ]
    table = LakeTable(RivalStore(tmp_path, rivals), spec)
    done = table.apply([stage(table.store, [(1, 5), (2, 8), (3, 5), (4, 5)])])
    assert done.version == 2, "both rivals came first"
    assert content(table) == [(1, 7), (2, 8), (3, 9), (4, 5)]
    assert_keys_once_in_every_version(table)


def test_many_threads_and_handles_lose_nothing(tmp_path: Path) -> None:
    tables = [LakeTable(Store(tmp_path), KEYED) for _ in range(3)]
    batches = [[(key % 17, version) for key in range(version, version + 9)] for version in range(30)]
    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(apply_rows, tables[n % 3], rows) for n, rows in enumerate(batches)]:
            done.result()
    assert content(tables[0]) == newest(row for rows in batches for row in rows)
    assert_keys_once_in_every_version(tables[0])


def test_a_chunk_without_key_is_appended_once_however_it_is_cut(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYLESS)
    a, b, c = [(1, 1), (1, 1)], [(2, 2)], [(3, 3), (1, 3)]
    table.apply([stage_chunks(table.store, {"a": a, "b": b})])
    done = table.apply([stage_chunks(table.store, {"b": b, "c": c}), stage_chunks(table.store, {"c": c, "a": a}, "x")])
    assert done.live_rows == 5
    assert content(table) == sorted([*a, *b, *c])
    version = table.apply([stage_chunks(table.store, {"c": c}, "again")]).version
    fresh = LakeTable(Store(tmp_path), KEYLESS)
    assert fresh.apply([stage_chunks(table.store, {"c": c, "b": b}, "more")]).version == version == done.version
    assert content(fresh) == sorted([*a, *b, *c])


def test_two_writers_append_the_same_chunk_once(tmp_path: Path) -> None:
    rival = LakeTable(Store(tmp_path), KEYLESS)
    chunk = {"a": [(1, 1)]}
    store = RivalStore(tmp_path, [lambda: rival.apply([stage_chunks(rival.store, chunk, "rival")])])
    table = LakeTable(store, KEYLESS)
    table.apply([stage_chunks(store, {**chunk, "b": [(2, 2)]})])
    assert content(table) == [(1, 1), (2, 2)]


def test_a_file_without_key_whose_chunks_miss_rows_is_refused(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYLESS)
    with pytest.raises(Invalid, match="do not cover"):
        table.apply([stage(table.store, [(1, 1)], key=())])


def test_a_staged_file_of_another_size_is_refused(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    staged = stage(table.store, [(1, 1)])
    with pytest.raises(Corrupt, match=staged.path):
        table.apply([replace(staged, size=staged.size + 1)])
    assert load(table.store).version == -1


def test_added_columns_arrive_with_the_next_commit(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(1, 1), (2, 1)])
    wider = replace(KEYED, schema=SCHEMA.append(pa.field("more", pa.list_(pa.float64()))))
    table = LakeTable(Store(tmp_path), wider)
    rows = arrow_rows([(2, 2)]).append_column("more", pa.array([[0.5]], pa.list_(pa.float64())))
    table.apply([write_data_file(table.store, rows, ("id",), "part")])
    live = scan(table.store, table.snapshot())
    assert live.column_names == ["id", "text", "more", "_version", "_import", "_row"]
    assert sorted(zip(live["id"].to_pylist(), live["more"].to_pylist(), strict=True)) == [(1, None), (2, [0.5])]
    apply_rows(LakeTable(Store(tmp_path), KEYED), [(3, 3)])
    assert "more" in scan(table.store, table.snapshot()).column_names


def test_a_changed_type_is_refused(tmp_path: Path) -> None:
    apply_rows(LakeTable(Store(tmp_path), KEYED), [(1, 1)])
    other = replace(KEYED, schema=pa.schema([("id", pa.string()), ("text", pa.string())]))
    with pytest.raises(Clash, match=r"'id'.*long, not string"):
        LakeTable(Store(tmp_path), other).apply([])


def test_applying_nothing_creates_the_empty_table_once(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    assert table.apply([]).version == 0
    assert table.apply([]).version == 0
    assert content(table) == []


def test_a_protocol_from_elsewhere_is_not_written_to(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    table.apply([])
    features = b'["timeMachine"]'
    protocol = b'{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":%b,"writerFeatures":%b}}'
    table.store.put_if_absent("_delta_log/00000000000000000001.json", protocol % (features, features))
    with pytest.raises(Unavailable, match="timeMachine"):
        apply_rows(table, [(1, 1)])


def test_a_staged_file_survives_json() -> None:
    staged = StagedFile("p.parquet", 10, 3, None, (StagedChunk("c", 0, 3, 9),))
    assert StagedFile.from_dict(staged.to_dict()) == staged


def test_unsafe_prefixes_and_missing_versions_are_refused(tmp_path: Path) -> None:
    store = LakeTable(Store(tmp_path), KEYED).store
    with pytest.raises(Invalid, match=r"\.\./"):
        stage(store, [(1, 1)], prefix="../x")
    with pytest.raises(Invalid, match="_version"):
        write_data_file(store, pa.table({"id": [1]}), ("id",), "part")
