"""Any history of a table (rows, deletes, truncations, revisions, a new generation), delivered in any order, split, repeated
and through several handles, ends as a dictionary says in which the greatest version of each key stands; without a key, as a
list says in which every chunk stands once."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millrace.lake.batch import DefinedFile, WriteBatch
from millrace.lake.log import load
from millrace.lake.read import scan
from millrace.lake.schema import spec_of
from millrace.lake.sidecar import StagedFile, write_data_file
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.model.table import Definition
from tests.support.examples import examples
from tests.support.lake import RivalStore
from tests.support.revisions import Revisions, column, row_table

FLOOR_OF_SECOND_LIFE = 100


@dataclass(frozen=True)
class Shape:
    """A revision as the model knows it: what each column is, by an identity that no renaming changes."""

    definition: Definition
    columns: Mapping[str, str]
    life: int = 1


def history(mode: str, keyed: bool, feed: bool = False) -> tuple[Revisions, list[Shape]]:
    """Widened, added with a default, dropped, added again, renamed (the key too), retyped, and begun anew."""
    made = Revisions(("id",) if keyed else (), deletion_vectors=mode, change_feed=feed)
    later = ["no"] if keyed else []
    number = column("a", ["null", "int"])
    long, double = column("a", ["null", "long"]), column("d", ["null", "double"], "a")
    text, other = column("b", ["null", "string"]), column("c", "string", default="then")
    return made, [
        Shape(made.add(column("id", "int"), number, text), {"id": "key", "a": "a", "b": "b"}),
        Shape(made.add(column("id", "int"), long, text, other), {"id": "key", "a": "a", "b": "b", "c": "c"}),
        Shape(made.add(column("id", "long"), long, {**other, "default": "now"}), {"id": "key", "a": "a", "c": "c"}),
        Shape(
            made.add(column("no", "long", "id"), double, other, text, key=later),
            {"no": "key", "d": "a", "c": "c", "b": "b again"},
        ),
        Shape(made.add(column("no", "long"), text, key=later), {"no": "key", "b": "b again"}),
        Shape(
            made.add(column("no", "string"), text, floor=FLOOR_OF_SECOND_LIFE), {"no": "key", "b": "b at last"}, life=2
        ),
    ]


DEFAULTS = {"c": "then"}


@dataclass(frozen=True)
class Chunk:
    """(key, whether it is deleted) of each row, staged under a revision."""

    version: int
    shape: int
    rows: tuple[tuple[int, bool], ...]

    def cells(self, shape: Shape, key: int) -> dict[str, Any]:
        """A row by the identity of its columns."""
        number = self.version % 5
        cells = {"key": str(key) if shape.life == 2 else key, "a": float(number), "c": f"c{number}"}
        cells |= {text: f"{text} {number}" for text in ("b", "b again", "b at last")}
        return {identity: cells[identity] for identity in shape.columns.values()}


chunks = st.lists(
    st.tuples(st.integers(0, 5), st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=6)),
    min_size=1,
    max_size=12,
)
steps = st.lists(
    st.tuples(st.sampled_from(["write", "write", "write", "rival", "maintain", "reopen"]), st.integers(1, 3)),
    min_size=3,
    max_size=14,
)


def expected(
    shapes: Sequence[Shape], seen: Sequence[Chunk], floors: Sequence[int], newest: int, keyed: bool
) -> list[dict[str, Any]]:
    final = shapes[newest]
    floor = max((*floors, FLOOR_OF_SECOND_LIFE if final.life == 2 else 0))
    winners: dict[object, tuple[Chunk, int, bool]] = {}
    for chunk in sorted(set(seen), key=lambda chunk: chunk.version):
        if chunk.version > floor and shapes[chunk.shape].life == final.life:
            for place, (key, deleted) in enumerate(chunk.rows):
                winners[key if keyed else (chunk.version, place)] = chunk, key, deleted
    rows = []
    for chunk, key, deleted in winners.values():
        if not deleted:
            cells = chunk.cells(shapes[chunk.shape], key)
            rows.append({name: cells.get(what, DEFAULTS.get(what)) for name, what in final.columns.items()})
    return ordered(rows)


def ordered(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    shown = [{name: cell for name, cell in row.items() if not name.startswith("_")} for row in rows]
    return sorted(shown, key=str)


def stage(store: Store, shape: Shape, together: Sequence[Chunk], prefix: str) -> StagedFile:
    """Some chunks of one revision in one file, as a task stages them."""
    names = {identity: name for name, identity in shape.columns.items()}
    tables, staged = [], []
    for chunk in together:
        rows = [
            {
                **{names[what]: cell for what, cell in chunk.cells(shape, key).items() if not deleted or what == "key"},
                "_deleted": deleted,
            }
            for key, deleted in chunk.rows
        ]
        table, described = row_table(shape.definition, chunk.version, rows, sum(part.num_rows for part in tables))
        tables.append(table)
        staged.append(described)
    return write_data_file(store, pa.concat_tables(tables), shape.definition.table.primary_key, prefix, staged)


class World:
    """A table, its handles, and what was delivered to it."""

    def __init__(
        self,
        root: Path,
        mode: str,
        keyed: bool,
        drawn: Sequence[tuple[int, Sequence[tuple[int, bool]]]],
        random: Random,
        feed: bool = False,
    ) -> None:
        self.root, self.random = root, random
        self.revisions, self.shapes = history(mode, keyed, feed)
        # A new life's versions lie above its floor, as the controller reserves them.
        self.chunks = [
            Chunk(
                number + 1 + FLOOR_OF_SECOND_LIFE * (self.shapes[shape].life - 1),
                shape,
                tuple((key, keyed and deleted) for key, deleted in rows),
            )
            for number, (shape, rows) in enumerate(drawn)
        ]
        self.handles = [self.handle(), self.handle()]
        self.seen: list[Chunk] = []
        self.floors: list[int] = []
        self.newest = 0
        self.written: list[WriteBatch] = []

    def handle(self, store: Store | None = None) -> LakeTable:
        first = spec_of(self.shapes[0].definition)
        return LakeTable(store or Store(self.root), first, self.revisions.known.__getitem__)

    def batch(self, size: int) -> WriteBatch:
        """Some chunks, together or apart; now and then a truncation, or a revision nothing was written under yet."""
        chosen = self.random.sample(self.chunks, min(size, len(self.chunks)))
        files = []
        for number in sorted({chunk.shape for chunk in chosen}):
            under = [chunk for chunk in chosen if chunk.shape == number]
            for together in [under] if self.random.random() < 0.5 else [[chunk] for chunk in under]:
                shape = self.shapes[number]
                prefix = f"p{self.random.randrange(3)}"
                files.append(DefinedFile(stage(Store(self.root), shape, together, prefix), shape.definition))
        self.seen += chosen
        self.newest = max(self.newest, *(chunk.shape for chunk in chosen))
        batch = WriteBatch(tuple(files))
        if self.random.random() < 0.2:
            floor = self.random.randrange(1, 8)
            self.floors.append(floor)
            batch = WriteBatch(batch.files, floor)
        if self.random.random() < 0.3:
            wanted = self.random.randrange(5)
            self.newest = max(self.newest, wanted)
            batch = WriteBatch(batch.files, batch.floor, self.shapes[wanted].definition)
        self.written.append(batch)
        return batch

    def step(self, kind: str, size: int) -> None:
        which = self.random.randrange(2)
        if kind == "maintain":
            self.handles[which].maintain()
        elif kind == "reopen":
            self.handles[which] = self.handle()
        elif kind == "rival":
            first, rival = self.batch(size), self.handle()
            overtaking = self.batch(1)
            self.handle(RivalStore(self.root, [lambda: rival.write(overtaking)])).write(first)
            rival.write(overtaking)
        else:
            self.handles[which].write(self.batch(size))


@examples(60)
@given(
    chunks,
    steps,
    st.sampled_from(["auto", "never"]),
    st.sampled_from([True, True, False]),
    st.randoms(use_true_random=False),
)
def test_a_table_is_what_its_history_says(
    drawn: list[tuple[int, list[tuple[int, bool]]]], plan: list[tuple[str, int]], mode: str, keyed: bool, random: Random
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), mode, keyed, drawn, random)
        world.handles[0].write(world.batch(1))
        for kind, size in plan:
            world.step(kind, size)
        wanted = expected(world.shapes, world.seen, world.floors, world.newest, keyed)
        store = Store(world.root)
        newest = load(store)
        assert ordered(scan(store, newest).to_pylist()) == wanted
        assert ordered(pl.scan_delta(folder).collect().to_dicts()) == wanted
        for version in range(newest.version + 1):
            rows = scan(store, load(store, version)).to_pylist()
            shown = [row.get("no", row.get("id")) if keyed else (row["_import"], row["_row"]) for row in rows]
            assert len(shown) == len(set(shown)), f"version {version} shows a row twice"
        for batch in world.written:
            world.handles[1].write(batch)
        assert load(store).version == newest.version, "what comes again changes nothing"


def test_a_shape_that_a_rival_changes_between_two_attempts(tmp_path: Path) -> None:
    revisions, shapes = history("auto", keyed=True)
    first, last = shapes[0], shapes[3]
    old, new = Chunk(1, 0, ((0, False),)), Chunk(2, 1, ((0, False),))

    def handle(store: Store) -> LakeTable:
        return LakeTable(store, spec_of(first.definition), revisions.known.__getitem__)

    def delivered(chunk: Chunk) -> WriteBatch:
        shape = shapes[chunk.shape]
        return WriteBatch((DefinedFile(stage(Store(tmp_path), shape, [chunk], "part"), shape.definition),))

    handle(Store(tmp_path)).write(delivered(old))
    overtaking, rival = delivered(new), handle(Store(tmp_path))
    handle(RivalStore(tmp_path, [lambda: rival.write(overtaking)])).prepare(last.definition)
    store = Store(tmp_path)
    assert ordered(scan(store, load(store)).to_pylist()) == expected(shapes, [old, new], [], 3, keyed=True)
