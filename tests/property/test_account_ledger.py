"""The ledger: whatever is told twice, out of order or in other batches, the counts are the same and exact."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import insert

from millrace.account.ledger import due, first_failure, fold
from millrace.model.budget import NO_BUDGET
from millrace.model.chunk import ChunkVerdict
from millrace.model.facts import ChunkJudged, Durable, Fact
from millrace.model.imports import PROCESSING, STOPPING, Counts, Import
from millrace.model.ops.imports import SettleImport
from millrace.model.sinks import ERROR_STORE
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from millrace.store.records import find_import, import_row
from tests.support.examples import examples

IMPORT = "imp_1"


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControlStore]:
    if request.param == "sqlite":
        opened = ControlStore(f"sqlite:///{tmp_path}/control.db")
    else:
        dsn: str = request.getfixturevalue("postgres_dsn")
        opened = ControlStore(dsn.replace("postgresql://", "postgresql+psycopg://"))
    yield opened
    opened.close()


def begin(store: ControlStore, state: str = PROCESSING, chunks: int | None = None, **more: object) -> None:
    announced = None if chunks is None else {"chunks": chunks, "rows": 0, "bytes": 0}
    imp = Import(IMPORT, "acme", "notes", "d", state, 1, 100, ("delta",), 1, announced=announced, **more)  # type: ignore[arg-type]
    with store.write() as connection:
        for table in (t.imports, t.chunks, t.durable_chunks):
            connection.execute(table.delete())
        connection.execute(insert(t.imports).values(import_row(imp, 1)))


def told(store: ControlStore) -> Import:
    with store.read() as connection:
        imp = find_import(connection, IMPORT)
    assert imp is not None
    return imp


def settled(store: ControlStore, passed: dict[str, int] | None = None) -> bool:
    with store.read() as connection:
        return isinstance(due(connection, told(store), passed or {}, lambda imp: NO_BUDGET), SettleImport)


def tell(store: ControlStore, facts: list[Fact]) -> None:
    with store.write() as connection:
        fold(connection, facts, 1)


chunk_counts = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=8)


@examples(60)
@given(chunks=chunk_counts, seed=st.integers(0, 10**6), copies=st.integers(1, 3))
def test_counts_do_not_depend_on_how_facts_arrive(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[tuple[int, int]], seed: int, copies: int
) -> None:
    opened = ControlStore(f"sqlite:///{tmp_path_factory.mktemp('ledger')}/control.db")
    begin(opened, chunks=len(chunks))
    verdicts = [ChunkVerdict(IMPORT, n, n, good + bad, good, bad) for n, (good, bad) in enumerate(chunks)]
    facts: list[Fact] = [ChunkJudged((verdict,)) for verdict in verdicts]
    facts += [Durable("delta", ((IMPORT, n),)) for n in range(len(chunks))]
    facts += [Durable(ERROR_STORE, ((IMPORT, n),)) for n, (_, bad) in enumerate(chunks) if bad]
    facts *= copies
    chance = random.Random(seed)
    chance.shuffle(facts)
    while facts:
        size = chance.randint(1, len(facts))
        tell(opened, facts[:size])
        facts = facts[size:]
    good, bad = sum(g for g, _ in chunks), sum(b for _, b in chunks)
    assert told(opened).counts == Counts(len(chunks), good + bad, good, bad)
    assert settled(opened)
    opened.close()


def test_an_import_is_not_over_before_everything_is_durable(store: ControlStore) -> None:
    begin(store, chunks=2)
    tell(store, [ChunkJudged((ChunkVerdict(IMPORT, 0, 1, 5, 4, 1), ChunkVerdict(IMPORT, 1, 2, 5, 5, 0)))])
    assert not settled(store)
    tell(store, [Durable("delta", ((IMPORT, 0), (IMPORT, 1)))])
    assert not settled(store), "the rejected row is not kept yet"
    tell(store, [Durable(ERROR_STORE, ((IMPORT, 0),))])
    assert settled(store)


def test_an_import_is_not_over_before_its_end_is_known(store: ControlStore) -> None:
    begin(store, chunks=None)
    tell(store, [ChunkJudged((ChunkVerdict(IMPORT, 0, 1, 5, 5, 0),)), Durable("delta", ((IMPORT, 0),))])
    assert not settled(store)


def test_a_stopped_import_is_over_when_the_queries_have_passed_every_marker(store: ControlStore) -> None:
    begin(store, STOPPING, markers={"0": 10, "2": 7})
    assert not settled(store, {"0": 11})
    assert not settled(store, {"0": 11, "2": 7})
    assert settled(store, {"0": 11, "2": 8})
    tell(store, [ChunkJudged((ChunkVerdict(IMPORT, 0, 1, 5, 5, 0),))])
    assert not settled(store, {"0": 11, "2": 8}), "a judged chunk goes to every sink even after a stop"


def test_a_verdict_counts_more_than_being_passed_over(store: ControlStore) -> None:
    begin(store, STOPPING, markers={})
    tell(store, [ChunkJudged((ChunkVerdict(IMPORT, 0, 1, 5, 0, 0, 5),))])
    assert told(store).counts == Counts(1, 5, 0, 0, 5)
    tell(store, [ChunkJudged((ChunkVerdict(IMPORT, 0, 1, 5, 4, 1),))])
    assert told(store).counts == Counts(1, 5, 4, 1, 0)
    tell(store, [ChunkJudged((ChunkVerdict(IMPORT, 0, 1, 5, 0, 0, 5),))])
    assert told(store).counts == Counts(1, 5, 4, 1, 0)


def test_a_chunk_with_other_bytes_fails_the_import(store: ControlStore) -> None:
    begin(store, chunks=1)
    tell(store, [ChunkJudged((ChunkVerdict(IMPORT, 0, 1, 5, 5, 0, checksum=1),))])
    tell(store, [ChunkJudged((ChunkVerdict(IMPORT, 0, 1, 5, 5, 0, checksum=2),))])
    assert told(store).counts.failed_chunks == 1
    with store.read() as connection:
        assert "twice" in str(first_failure(connection, IMPORT))


def test_other_bytes_are_noticed_also_when_both_are_told_at_once(store: ControlStore) -> None:
    begin(store, chunks=1)
    both = (ChunkVerdict(IMPORT, 0, 1, 5, 5, 0, checksum=1), ChunkVerdict(IMPORT, 0, 1, 5, 5, 0, checksum=2))
    tell(store, [ChunkJudged(both[:1]), ChunkJudged(both[1:])])
    assert told(store).counts == Counts(1, 5, 5, 0, failed_chunks=1)
    tell(store, [ChunkJudged(both)])
    assert told(store).counts == Counts(1, 5, 5, 0, failed_chunks=1), "noticed once"


def test_an_import_that_is_over_hears_nothing_more(store: ControlStore) -> None:
    begin(store, "completed", chunks=1)
    tell(store, [ChunkJudged((ChunkVerdict(IMPORT, 7, 1, 5, 5, 0),)), Durable("delta", ((IMPORT, 7),))])
    assert told(store).counts == Counts()
