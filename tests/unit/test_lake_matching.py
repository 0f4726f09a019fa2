"""Equal hashes are found whichever list is longer, at the ends of the range, and as often as they are repeated."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.lake import matching
from millrace.lake.matching import WantedHashes

# Few leading and few trailing values, so that hashes are alike at either end and still different.
EDGES = st.sampled_from([0, 1, 2**63, 2**64 - 2, 2**64 - 1])
ALIKE = st.builds(lambda lead, trail: (lead << 32) | trail, st.integers(0, 3), st.integers(0, 3))
HASHES = st.lists(EDGES | ALIKE | st.integers(0, 2**64 - 1), max_size=30)


def sorted_hashes(values: list[int]) -> np.ndarray:
    return np.sort(np.array(values, dtype=np.uint64))


def every_pair(ours: np.ndarray, others: np.ndarray) -> list[tuple[int, int]]:
    return [(i, j) for i, our in enumerate(ours) for j, other in enumerate(others) if our == other]


def found(ours: np.ndarray, others: np.ndarray) -> list[tuple[int, int]]:
    our, other = WantedHashes(ours).pairs(others)
    return sorted(zip(our.tolist(), other.tolist(), strict=True))


@given(HASHES, HASHES, st.integers(0, 1))
def test_pairs_are_all_equal_ones(ours: list[int], others: list[int], shared: int) -> None:
    ours_sorted, others_sorted = sorted_hashes(ours), sorted_hashes(others + shared * ours)
    assert found(ours_sorted, others_sorted) == every_pair(ours_sorted, others_sorted)


@pytest.mark.parametrize("ratio", [0.1, 1, 3, 10])
def test_short_and_long_lists_in_blocks(ratio: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "SIFTED_AT_ONCE", 64)
    random = np.random.default_rng(7)
    ours = np.sort(random.integers(0, 2**64, 500, dtype=np.uint64))
    strangers = random.integers(0, 2**64, int(500 * ratio), dtype=np.uint64)
    others = np.sort(np.concatenate([ours[::7], strangers]))
    assert found(ours, others) == every_pair(ours, others)
    assert len(found(ours, others)) >= len(ours[::7])


def test_one_sought_answers_for_many_lists() -> None:
    sought = WantedHashes(sorted_hashes([5, 9, 2**64 - 1]))
    assert [sought.pairs(sorted_hashes([value]))[0].tolist() for value in (5, 6, 2**64 - 1, 0)] == [[0], [], [2], []]
