"""Key files: a changed bit is found wherever it is, a filter hides no key, and a lookup reads few pages of a large file."""

from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.lake import key_format, store
from millrace.lake.key_filter import WORDS, FilterBuilder, blocks_of, may_have
from millrace.lake.key_format import read_keys, write_keys
from millrace.lake.key_merge import merge_keys
from millrace.lake.key_pages import PAGE_BYTES, DamagedKeys, PageSums, page_sums
from millrace.lake.keys import KEYS_FOLDER, RUNS_FOLDER, KeyFile, sidecar_name
from millrace.lake.matching import WantedHashes
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.lake.tombstones import TOMBSTONES_FOLDER
from millrace.model.errors import Corrupt
from tests.support.examples import examples
from tests.support.lake import KEYED, apply_rows, content, newest, stage, stage_mixed

NAME = f"{RUNS_FOLDER}/test.keys"
FILES = tuple(f"part-{number}.parquet" for number in range(3))
ROWS = 200_000


def key_file(rows: int, seed: int = 1, files: tuple[str, ...] = FILES) -> KeyFile:
    random = np.random.default_rng(seed)
    h1 = np.sort(random.integers(0, 1 << 64, rows, dtype=np.uint64))
    h1[10:14] = h1[10]
    h2 = random.integers(0, 1 << 64, rows, dtype=np.uint64)
    version, position = np.arange(rows, dtype=np.int64), np.arange(rows, dtype=np.uint32)
    file = random.integers(0, len(files), rows).astype(np.uint32) if len(files) > 1 else None
    return KeyFile(files, h1, h2, version, position, file)


@pytest.fixture
def mapped(tmp_path: Path) -> tuple[Store, KeyFile]:
    """A file that is mapped, with a filter."""
    made = key_file(ROWS)
    write_keys(Store(tmp_path), NAME, made, filtered=True)
    return Store(tmp_path), made


def found_in(keys: KeyFile, wanted: KeyFile, rows: np.ndarray) -> set[tuple[int, int]]:
    order = np.sort(rows)
    key, row = keys.find(WantedHashes(wanted.h1[order]), wanted.h2[order])
    return set(zip(order[key].tolist(), row.tolist(), strict=True))


@pytest.mark.parametrize("count", [0, 1, 500, 5000, 150_000])
def test_a_lookup_finds_every_row_and_no_other(mapped: tuple[Store, KeyFile], count: int) -> None:
    store, made = mapped
    keys, others = read_keys(store, NAME), key_file(ROWS, seed=2)
    assert keys is not None
    assert keys.filter is not None
    rows = np.random.default_rng(3).choice(ROWS, count, replace=False)
    assert found_in(keys, made, rows) == {(row, row) for row in rows.tolist()}
    assert found_in(keys, others, rows) == set()


def test_equal_first_hashes_are_all_found(mapped: tuple[Store, KeyFile]) -> None:
    store, made = mapped
    keys = read_keys(store, NAME)
    assert keys is not None
    same = np.concatenate([made.h1[10:14], made.h1[10:14]])
    h2 = np.concatenate([made.h2[10:14], np.zeros(4, dtype=np.uint64)])
    key, row = keys.find(WantedHashes(same), h2)
    assert sorted(zip(key.tolist(), row.tolist(), strict=True)) == [(0, 10), (1, 11), (2, 12), (3, 13)]


def test_hashes_that_are_equal_over_many_pages_are_found(tmp_path: Path) -> None:
    made = key_file(ROWS)
    made.h1[5000:9000] = made.h1[5000]
    write_keys(Store(tmp_path), NAME, made, filtered=True)
    keys = read_keys(Store(tmp_path), NAME)
    assert keys is not None
    rows = np.array([4999, 5000, 7123, 8999, 9000])
    assert found_in(keys, made, rows) == {(row, row) for row in rows.tolist()}


def test_new_keys_read_hardly_more_than_the_filter(mapped: tuple[Store, KeyFile]) -> None:
    store, _ = mapped
    keys, others = read_keys(store, NAME), key_file(ROWS, seed=2)
    assert keys is not None
    assert keys.pages is not None
    assert keys.filter is not None
    at_open = keys.pages.reads
    found_in(keys, others, np.arange(0, ROWS, ROWS // 1000))
    filter_pages = -(-keys.filter.nbytes // PAGE_BYTES)
    assert keys.pages.reads - at_open <= filter_pages + 40
    assert len(store.read(NAME)) / PAGE_BYTES > 1000
    assert keys.filter.nbytes * 8 / ROWS < 11


def test_about_one_absent_key_in_a_hundred_passes_a_filter() -> None:
    made, others = key_file(ROWS), key_file(ROWS, seed=2)
    builder = FilterBuilder(ROWS)
    words = np.concatenate(
        [builder.add(made.h1[:7], made.h2[:7]), builder.add(made.h1[7:], made.h2[7:]), builder.finish()]
    )
    assert len(words) == builder.count * WORDS
    assert may_have(words, blocks_of(made.h1, builder.count), made.h2).all()
    assert may_have(words, blocks_of(others.h1, builder.count), others.h2).mean() < 0.02


@examples(30)
@given(st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=300), st.integers(1, 50))
def test_a_filter_has_every_key_however_it_was_cut(hashes: list[int], step: int) -> None:
    h1 = np.sort(np.array(hashes, dtype=np.uint64))
    h2 = h1 * np.uint64(0x9E3779B97F4A7C15)
    builder = FilterBuilder(len(h1))
    parts = [builder.add(h1[at : at + step], h2[at : at + step]) for at in range(0, len(h1), step)]
    words = np.concatenate([*parts, builder.finish()])
    assert may_have(words, blocks_of(h1, builder.count), h2).all()


@examples(30)
@given(st.integers(0, 3000), st.data())
def test_sums_do_not_depend_on_pieces_and_change_with_each_bit(units: int, data: st.DataObject) -> None:
    values = np.random.default_rng(units).integers(0, 1 << 32, units, dtype=np.uint32)
    cut = data.draw(st.integers(0, units))
    pieces = PageSums()
    pieces.add(values[:cut])
    pieces.add(values[cut:])
    assert pieces.finish().tolist() == page_sums(values).tolist()
    if units:
        values[data.draw(st.integers(0, units - 1))] ^= np.uint32(1 << data.draw(st.integers(0, 31)))
        assert pieces.finish().tolist() != page_sums(values).tolist()


def flip(store: Store, name: str, at: int) -> None:
    body = bytearray(store.read(name))
    body[at] ^= 1 << (at % 8)
    store.write(name, bytes(body))


@pytest.mark.parametrize("share", [0.0, 0.001, 0.2, 0.5, 0.6, 0.8, 0.93, 0.97, 0.9999])
def test_a_flipped_bit_is_found_wherever_it_is(mapped: tuple[Store, KeyFile], share: float) -> None:
    store, _ = mapped
    flip(store, NAME, int(share * store.size(NAME)))
    keys = read_keys(store, NAME)
    if keys is not None:
        with pytest.raises(DamagedKeys):
            keys.check()


def old_format(store: Store, name: str, keys: KeyFile) -> None:
    """As files were before they had checksums."""
    header = orjson.dumps({"files": list(keys.files), "rows": len(keys)})
    header += b" " * (-(16 + len(header)) % 8)
    columns = [keys.h1, keys.h2, keys.version, keys.position, *([] if keys.file is None else [keys.file])]
    padded = [column.tobytes() + bytes(-column.nbytes % 8) for column in columns]
    store.write(name, b"MRKEYS01" + len(header).to_bytes(8, "little") + header + b"".join(padded))


@pytest.mark.parametrize("rows", [3, 100_000])
@pytest.mark.parametrize("files", [FILES, FILES[:1]])
def test_files_of_the_first_format_are_read(tmp_path: Path, rows: int, files: tuple[str, ...]) -> None:
    store, made = Store(tmp_path), key_file(max(rows, 14), files=files).part(slice(0, rows))
    old_format(store, NAME, made)
    keys = read_keys(store, NAME)
    assert keys is not None
    assert keys.is_old
    for column in ("h1", "h2", "version", "position"):
        assert getattr(keys, column).tolist() == getattr(made, column).tolist()
    some = np.arange(0, rows, max(1, rows // 50))
    assert found_in(keys, made, some) >= {(row, row) for row in some.tolist()}


def test_a_merge_gets_a_filter_and_finds_the_same(tmp_path: Path) -> None:
    store = Store(tmp_path)
    sources = [key_file(40_000, seed=seed, files=(f"part-{seed}.parquet",)) for seed in range(3)]
    name = merge_keys(store, sources, frozenset(source.files[0] for source in sources))
    run = read_keys(store, name)
    assert run is not None
    assert run.filter is not None
    run.check()
    for number, source in enumerate(sources):
        rows = np.arange(0, 40_000, 97)
        key, row = run.find(WantedHashes(source.h1[rows]), source.h2[rows])
        assert rows[key].tolist() == run.position[row].tolist()
        assert run.files_of(row).tolist() == [number] * len(rows)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LakeTable:
    """All its key files are mapped and checked page by page, runs have filters."""
    monkeypatch.setattr(store, "MAPPING_THRESHOLD_BYTES", 1)
    monkeypatch.setattr(key_format, "FILTERED_ROWS", 1)
    table = LakeTable(Store(tmp_path), KEYED)
    for number in range(9):
        apply_rows(table, [(key, 1) for key in range(1000 * number, 1000 * number + 1000)])
    return table


@pytest.mark.parametrize("folder", [RUNS_FOLDER, KEYS_FOLDER])
@pytest.mark.parametrize("share", [0.1, 0.4, 0.7, 0.9])
def test_a_flipped_bit_gives_no_duplicate(table: LakeTable, folder: str, share: float) -> None:
    if folder == KEYS_FOLDER:
        for entry in table.store.list(RUNS_FOLDER):
            table.store.delete(entry.name)
    damaged = table.store.list(folder)
    assert damaged
    for entry in damaged:
        flip(table.store, entry.name, int(share * entry.size))
    updates = [(key, 2) for key in range(0, 9000, 2)]
    apply_rows(LakeTable(Store(table.store.root), KEYED), updates)
    assert content(table) == newest([*((key, 1) for key in range(9000)), *updates])


def test_damage_is_found_while_merging(table: LakeTable) -> None:
    run = table.store.list(RUNS_FOLDER)[0]
    flip(table.store, run.name, int(0.5 * run.size))
    for number in range(9, 80):
        apply_rows(table, [(key, 1) for key in range(1000 * number, 1000 * number + 1000)])
    LakeTable(Store(table.store.root), KEYED).maintain()
    apply_rows(LakeTable(Store(table.store.root), KEYED), [(key, 2) for key in range(0, 80_000, 3)])
    expected = newest([*((key, 1) for key in range(80_000)), *((key, 2) for key in range(0, 80_000, 3))])
    assert content(table) == expected


def test_a_run_without_checksums_gets_them_from_upkeep(table: LakeTable) -> None:
    run = read_keys(table.store, table.store.list(RUNS_FOLDER)[0].name)
    assert run is not None
    assert run.name is not None
    run.check()
    old_format(table.store, run.name, run)
    LakeTable(Store(table.store.root), KEYED).maintain()
    now = read_keys(table.store, run.name)
    assert now is not None
    assert not now.is_old


def test_a_damaged_tombstone_file_stops_the_table_in_words(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(key, 1) for key in range(10)])
    table.apply([stage_mixed(table.store, [(1, 2, True), (2, 2, True)])])
    (tombstones,) = [entry for entry in table.store.list(TOMBSTONES_FOLDER) if entry.name.endswith(".keys")]
    flip(table.store, tombstones.name, tombstones.size // 2)
    with pytest.raises(Corrupt, match="tombstone file"):
        apply_rows(LakeTable(Store(tmp_path), KEYED), [(1, 3)])


def test_a_damaged_sidecar_of_staged_rows_is_made_again(table: LakeTable) -> None:
    staged = stage(table.store, [(key, 5) for key in range(3000)])
    flip(table.store, sidecar_name(staged.path), table.store.size(sidecar_name(staged.path)) // 3)
    table.apply([staged])
    assert content(table)[:3000] == [(key, 5) for key in range(3000)]
