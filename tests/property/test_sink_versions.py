"""What was written last is known, and what was forgotten is never taken for newer: against a plain dictionary."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.sink import versions as module
from millrace.sink.versions import UNKNOWN, Versions, Written

# Few first lanes, so that keys share them.
KEYS = st.tuples(st.integers(0, 3), st.integers(0, 6))
BATCHES = st.lists(st.lists(st.tuples(KEYS, st.booleans()), max_size=12), max_size=12)


def written(batch: list[tuple[tuple[int, int], bool]], first_version: int) -> Written:
    return Written(
        np.array([key[0] for key, _ in batch], dtype=np.uint64),
        np.array([key[1] for key, _ in batch], dtype=np.uint64),
        np.arange(first_version, first_version + len(batch), dtype=np.int64),
        np.array([deleted for _, deleted in batch], dtype=np.bool_),
    )


def lanes(keys: list[tuple[int, int]]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    return np.array([k[0] for k in keys], dtype=np.uint64), np.array([k[1] for k in keys], dtype=np.uint64)


@given(batches=BATCHES, most=st.integers(1, 12), floor=st.integers(0, 40), small=st.integers(0, 10))
def test_the_last_version_is_known_or_lies_under_the_horizon(
    batches: list[list[tuple[tuple[int, int], bool]]], most: int, floor: int, small: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "SMALL_RUN", small)
        memory, model, version = Versions(), {}, 1
        for at, batch in enumerate(batches):
            memory.remember(Written.from_bytes(written(batch, version).to_bytes()))
            for key, deleted in batch:
                model[key] = version, deleted
                version += 1
            if at == len(batches) // 2:
                memory.raise_floor(floor)
                memory.forget(most)
    keys = [(first, second) for first in range(4) for second in range(7)]
    for key, found in zip(keys, memory.known(*lanes(keys)).tolist(), strict=True):
        last, deleted = model.get(key, (UNKNOWN, False))
        if found != last:
            assert found == UNKNOWN, "never a wrong version"
            assert last <= floor or (last <= memory.horizon and not deleted)
