"""Positions as bits agree with the same sets kept as numbers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millrace.formats import bits

masks = st.lists(st.booleans(), min_size=1, max_size=200)


@given(masks, st.integers(0, 220))
def test_bits_agree_with_sets_of_numbers(mask: list[bool], limit: int) -> None:
    given_bits = bits.where(np.array(mask))
    numbers = [at for at, there in enumerate(mask) if there]
    room = 64 * len(given_bits)

    assert bits.positions(given_bits).tolist() == numbers
    assert bits.count(given_bits) == len(numbers)
    assert bits.first(given_bits) == (numbers[0] if numbers else None)
    assert bits.last(given_bits) == (numbers[-1] if numbers else None)
    behind = [at + 1 for at in numbers if at + 1 < room]
    assert bits.positions(bits.following(given_bits)).tolist() == behind
    assert bits.positions(bits.following(given_bits, start=True)).tolist() == [0, *behind]
    assert bits.positions(bits.preceding(given_bits)).tolist() == [at - 1 for at in numbers if at]
    assert bits.positions(bits.before(given_bits, limit)).tolist() == [at for at in numbers if at < limit]
    odd = [at for at in range(room) if sum(number <= at for number in numbers) % 2]
    assert bits.positions(bits.odd_so_far(given_bits)).tolist() == odd
