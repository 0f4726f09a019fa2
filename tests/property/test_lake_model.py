"""Whatever is staged, in whatever order, split, repeated, by whichever handle: the table equals a dictionary."""

import tempfile
from collections import Counter
from pathlib import Path
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from millrace.lake.log import load
from millrace.lake.schema import DeletionVectors, TableSpec
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from tests.support.examples import examples
from tests.support.lake import (
    KEYLESS,
    SCHEMA,
    RivalStore,
    Rows,
    assert_keys_once_in_every_version,
    content,
    newest,
    read_by_deltalake,
    read_by_polars,
    stage,
    stage_chunks,
)

# Small ranges on purpose: keys must meet.
rows = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 15)), min_size=1, max_size=10)
steps = st.lists(
    st.tuples(
        st.sampled_from(["apply", "apply", "apply", "rival", "maintain", "reopen"]),
        st.integers(0, 1),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=10,
)


class Writers:
    """Two handles on one table, and a third writer that can overtake either of them."""

    def __init__(self, root: Path, spec: TableSpec) -> None:
        self.root, self.spec = root, spec
        self.handles = [LakeTable(Store(root), spec), LakeTable(Store(root), spec)]

    def step(self, kind: str, which: int, files: list[Rows], overtaking: list[Rows]) -> list[Rows]:
        """Does one step; returns the rows that the table must know from now on."""
        handle = self.handles[which]
        if kind == "maintain":
            handle.maintain()
            return []
        if kind == "reopen":
            self.handles[which] = LakeTable(Store(self.root), self.spec)
            return []
        if kind == "rival":
            return [*files, *self._overtaken(files, overtaking)]
        handle.apply([stage(handle.store, rows) for rows in files])
        return files

    def _overtaken(self, files: list[Rows], overtaking: list[Rows]) -> list[Rows]:
        """Applies files while a rival commits first; returns the rival's rows, if there was anything to commit."""
        rival, landed = LakeTable(Store(self.root), self.spec), []

        def commit_first() -> None:
            rival.apply([stage(rival.store, rows, prefix="rival") for rows in overtaking])
            landed.extend(overtaking)

        store = RivalStore(self.root, [commit_first])
        LakeTable(store, self.spec).apply([stage(store, rows) for rows in files])
        return landed


@examples(40)
@given(
    st.lists(rows, min_size=10, max_size=10),
    steps,
    st.sampled_from(["auto", "never"]),
    st.randoms(use_true_random=False),
)
def test_a_keyed_table_is_a_dictionary(
    files: list[Rows], plan: list[tuple[str, int, int]], mode: DeletionVectors, random: Random
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        writers, known = Writers(root, TableSpec("t", SCHEMA, ("id",), mode)), []
        for kind, which, first in plan:
            chosen, overtaking = random.sample(files, 1 + first % 3), random.sample(files, 2)
            known += [row for part in writers.step(kind, which, chosen, overtaking) for row in part]
        table = writers.handles[0]
        table.apply([])
        assert content(table) == read_by_polars(root) == newest(known)
        assert_keys_once_in_every_version(table)
        before = table.snapshot()
        assert table.apply([stage(table.store, known, prefix="all")] if known else []) == before
        assert content(table) == newest(known)


@examples(30)
@given(
    st.lists(
        st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=4, unique=True), min_size=1, max_size=3), max_size=6
    )
)
def test_chunks_without_key_are_there_once(batches: list[list[list[int]]]) -> None:
    chunks = {number: [(number, number)] * (1 + number % 3) for number in range(9)}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        handles = [LakeTable(Store(root), KEYLESS), LakeTable(Store(root), KEYLESS)]
        handles[0].apply([])
        for turn, batch in enumerate(batches):
            handle = handles[turn % 2]
            handle.apply([stage_chunks(handle.store, {f"c{n}": chunks[n] for n in file}, f"p{turn}") for file in batch])
        sent = {number for batch in batches for file in batch for number in file}
        expected = sorted(row for number in sent for row in chunks[number])
        assert content(handles[0]) == read_by_deltalake(root) == expected
        for version in range(load(handles[0].store).version + 1):
            seen = Counter(key for key, _ in content(handles[0], version))
            assert all(count == len(chunks[key]) for key, count in seen.items())
