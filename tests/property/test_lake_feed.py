"""The change feed tells exactly what changed. Any history of a table, replayed from the feed alone, gives the table at every
version, and another engine reads the changes that follow from a model of the table."""

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millrace.lake.log import load
from millrace.lake.read import scan
from millrace.lake.schema import DeletionVectors
from millrace.lake.sidecar import StagedFile
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from tests.property.test_lake_history import World, chunks, steps
from tests.support.examples import examples
from tests.support.feed_model import FeedModel, read_by_deltalake
from tests.support.feed_replay import columns_of, replayed, shown
from tests.support.lake import KEYED, content, stage_mixed, text_of


@examples(60)
@given(
    chunks,
    steps,
    st.sampled_from(["auto", "never"]),
    st.sampled_from([True, True, False]),
    st.randoms(use_true_random=False),
)
def test_the_feed_gives_the_table_at_every_version(
    drawn: list[tuple[int, list[tuple[int, bool]]]], plan: list[tuple[str, int]], mode: str, keyed: bool, random: Random
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        world = World(root, mode, keyed, drawn, random, feed=True)
        world.handles[0].write(world.batch(1))
        for kind, size in plan:
            world.step(kind, size)
        store, columns = Store(root), dict[str, Any]()
        for version, rows in enumerate(replayed(root)):
            columns = dict(columns_of(root, version, columns))
            there = scan(store, load(store, version)).to_pylist()
            assert rows == Counter(shown(row, columns) for row in there), f"version {version}"
        before = load(store).version
        for batch in world.written:
            world.handles[1].write(batch)
        assert load(store).version == before, "what comes again changes nothing"


keys = st.integers(0, 7)
imports = st.tuples(st.just("import"), st.integers(1, 30), st.sets(keys, max_size=5), st.sets(keys, max_size=3))
merges = st.tuples(
    st.just("both"), st.integers(1, 30), st.sets(keys, min_size=1, max_size=5), st.sets(keys, max_size=3)
)
others = st.tuples(
    st.sampled_from(["truncate", "maintain", "again"]),
    st.integers(0, 10),
    st.just(set[int]()),
    st.sets(keys, max_size=2),
)


@examples(60)
@given(
    st.lists(st.one_of(imports, imports, merges, others), min_size=2, max_size=12), st.sampled_from(["auto", "never"])
)
def test_deltalake_reads_the_changes_of_the_model(
    plan: list[tuple[str, int, set[int], set[int]]], mode: DeletionVectors
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, model = Path(folder), FeedModel()
        table = LakeTable(Store(root), replace(KEYED, deletion_vectors=mode, change_feed=True))
        table.apply([])
        files: list[StagedFile] = []
        for kind, version, changed, deleted in plan:
            if kind == "maintain":
                table.maintain()
            elif kind == "again":
                table.apply(files)
            elif kind == "truncate":
                files = [stage_mixed(table.store, [(key, version + 1, True) for key in deleted])] if deleted else []
                table.apply(files, floor=version)
                model.truncated(version)
                model.imported(version + 1, {}, deleted)
            else:
                gone = deleted - changed
                rows = [(key, version, False) for key in changed] + [(key, version, True) for key in gone]
                files = [stage_mixed(table.store, rows)] if rows else []
                model.imported(version, {key: text_of(key, version) for key in changed}, gone)
                if kind == "both":
                    files += [stage_mixed(table.store, [(key, version + 1, False) for key in gone | {0}], "later")]
                    model.imported(version + 1, {key: text_of(key, version + 1) for key in gone | {0}})
                table.apply(files)
            model.committed(load(table.store).version)
        newest = load(table.store).version
        assert {key: row[0] for key, row in model.rows.items()} == dict(content(table))
        for first in range(newest + 1):
            last = first + (newest - first) // 2
            assert read_by_deltalake(root, first, last) == model.between(first, last), (first, last)
        assert read_by_deltalake(root, 0, newest) == model.between(0, newest)
