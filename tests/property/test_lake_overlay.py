"""Mappings that follow from each other by changes hold what a plain dictionary would. Earlier ones stay as they were."""

from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.lake import overlay
from millrace.lake.actions import Transaction
from millrace.lake.chunk_ids import ChunkIds, columns_of
from millrace.lake.overlay import Overlay
from tests.support.examples import examples

KEYS = [f"import/{number}" for number in range(12)]
Change = tuple[dict[str, int], list[str]]
CHANGES = st.lists(
    st.tuples(st.dictionaries(st.sampled_from(KEYS), st.integers(0, 9)), st.lists(st.sampled_from(KEYS))), max_size=12
)


@pytest.fixture(scope="module", autouse=True)
def _often_merged() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlay, "LEAST_CHANGES", 3)
        yield


def transactions(values: Mapping[str, int]) -> dict[str, Transaction]:
    return {key: Transaction(key, value, 10 * value) for key, value in values.items()}


def check(found: Overlay[str, Transaction], expected: dict[str, Transaction]) -> None:
    assert len(found) == len(expected)
    assert all((key in found) == (key in expected) for key in KEYS)
    assert all(found.get(key) == expected.get(key) for key in KEYS)


@examples(200)
@given(start=st.dictionaries(st.sampled_from(KEYS), st.integers(0, 9)), changes=CHANGES)
def test_changes_are_those_of_a_dictionary(start: dict[str, int], changes: list[Change]) -> None:
    expected = transactions(start)
    for following in (Overlay(dict(expected)), ChunkIds(columns_of(list(expected.values())))):
        steps: list[tuple[Overlay[str, Transaction], dict[str, Transaction]]] = [(following, expected)]
        for new, gone in changes:
            found, known = steps[-1]
            steps.append(
                (
                    found.changed(transactions(new), gone),
                    {key: value for key, value in known.items() if key not in gone} | transactions(new),
                )
            )
        for found, known in steps:
            check(found, known)
        for found, known in steps:
            assert found == known
            assert sorted(found.values(), key=lambda done: done.app_id) == sorted(
                known.values(), key=lambda done: done.app_id
            )
            check(found, known)


@examples(50)
@given(
    values=st.dictionaries(st.sampled_from(KEYS), st.integers(0, 9)),
    oldest=st.integers(0, 90),
    floor=st.integers(-1, 9),
)
def test_old_chunk_ids_are_dropped(values: dict[str, int], oldest: int, floor: int) -> None:
    known = transactions(values)
    kept = {key: done for key, done in known.items() if done.updated_ms >= oldest and done.version > floor}
    check(ChunkIds().changed(known).since(oldest, floor), kept)
