"""The hash of a key is stored beside every data file: it must never change, and never confuse two keys."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest

from millrace.lake.keyhash import BLOCK_ROWS, LONGEST_WORDWISE_BYTES, hash_keys
from millrace.model.errors import Invalid


def hashes(*columns: pa.Array) -> list[tuple[int, int]]:
    first, second = hash_keys(columns)
    return list(zip(first.tolist(), second.tolist(), strict=True))


GOLDEN = [
    (pa.array([42], pa.int64()), "587ae3f990bb2101232a5e6ba5e1139b"),
    (pa.array([-1], pa.int32()), "cc23776315ca960b22ef7de99163a165"),
    (pa.array([1.5], pa.float64()), "9260b88973af04063862870586ed1d09"),
    (pa.array([True]), "511ed9396edebbc2f0480c596f1e4db5"),
    (pa.array(["millrace"]), "ca7e27db99448483040125b1627d6e1f"),
    (pa.array([""]), "bf0886c611c8077b085f9f1563d84102"),
    (pa.array(["ü" * 5 + "x"]), "0c030f258e6649f635e76d6bfb205dc5"),
    (pa.array(["long" * 50]), "8e4c563a7238230cdd04e4b75da6fde6"),
    (pa.array([b"millrace"]), "91a634bb2aeb94edbbc7cea88adb9a73"),
    (pa.array([datetime.date(2024, 2, 29)]), "3c0759c71c92b0d033d0a417bbff10a2"),
    (pa.array([1709164800000000], pa.timestamp("us", tz="UTC")), "7c6d7b37d76cad85b45824e17b43ae19"),
    (pa.array([decimal.Decimal("-12.50")], pa.decimal128(10, 2)), "e1eec3e97b548f35b56baaf7ecf103cf"),
    (pa.array([None], pa.int64()), "7d8654f61d76126e0f818dec1a357f14"),
]


@pytest.mark.parametrize(
    ("column", "expected"), GOLDEN, ids=[str(column.type) + str(column[0]) for column, _ in GOLDEN]
)
def test_values_never_change(column: pa.Array, expected: str) -> None:
    ((first, second),) = hashes(column)
    assert f"{first:016x}{second:016x}" == expected


def test_a_key_of_several_columns_never_changes() -> None:
    ((first, second),) = hashes(pa.array([7], pa.int64()), pa.array(["a"]), pa.array([None], pa.string()))
    assert f"{first:016x}{second:016x}" == "27361959f6902d1a6225d985ffdbef92"


def test_widening_a_column_keeps_the_hash() -> None:
    assert hashes(pa.array([5, -5], pa.int32())) == hashes(pa.array([5, -5], pa.int64()))
    assert hashes(pa.array([0.5], pa.float32())) == hashes(pa.array([0.5], pa.float64()))
    assert hashes(pa.array(["a"], pa.string())) == hashes(pa.array(["a"], pa.large_string()))
    assert hashes(pa.array([b"abcd"], pa.binary(4))) == hashes(pa.array([b"abcd"], pa.binary()))


def test_types_columns_lengths_and_nulls_are_told_apart() -> None:
    one = [
        hashes(pa.array([0], pa.int64())),
        hashes(pa.array([0.0])),
        hashes(pa.array([False])),
        hashes(pa.array([None], pa.int64())),
        hashes(pa.array([""])),
        hashes(pa.array([b""])),
        hashes(pa.array(["\0"])),
        hashes(pa.array(["\0\0"])),
        hashes(pa.array([0], pa.date32())),
        hashes(pa.array([0], pa.timestamp("us"))),
        hashes(pa.array(["ab"]), pa.array(["c"])),
        hashes(pa.array(["a"]), pa.array(["bc"])),
        hashes(pa.array(["abc"]), pa.array([""])),
        hashes(pa.array([1]), pa.array([2])),
        hashes(pa.array([2]), pa.array([1])),
        hashes(pa.array([None], pa.int64()), pa.array([1])),
        hashes(pa.array([1]), pa.array([None], pa.int64())),
    ]
    assert len({pair for row in one for pair in row}) == len(one)


def test_equal_floats_hash_equal() -> None:
    zero, minus_zero, first_nan, second_nan = hashes(pa.array([0.0, -0.0, float("nan"), -float("nan")]))
    assert zero == minus_zero
    assert first_nan == second_nan


@pytest.mark.parametrize("length", [7, 8, 9, LONGEST_WORDWISE_BYTES, LONGEST_WORDWISE_BYTES + 1])
def test_a_cell_hashes_the_same_wherever_it_stands(length: int) -> None:
    cells = ["x", "y" * length, "", None, "z" * (length + 1), "y" * length]
    column = pa.array(cells)
    together = hashes(column)
    assert together[1] == together[5]
    for row, cell in enumerate(cells):
        assert together[row] == hashes(pa.array([cell], pa.string()))[0]
        assert together[row] == hashes(column.slice(row, 1))[0]


def test_blocks_and_chunks_do_not_show() -> None:
    values = np.arange(2 * BLOCK_ROWS + 3)
    whole = hashes(pa.array(values))
    assert whole == hashes(pa.chunked_array([values[:5], values[5:]]))
    assert whole[BLOCK_ROWS] == hashes(pa.array([BLOCK_ROWS]))[0]


def test_each_lane_alone_keeps_many_keys_apart() -> None:
    first, second = hash_keys([pa.array(np.arange(300_000)), pa.array((np.arange(300_000) % 7).astype(str))])
    assert len(np.unique(first)) == len(np.unique(second)) == 300_000


def test_nested_key_columns_are_refused() -> None:
    with pytest.raises(Invalid, match="list"):
        hash_keys([pa.array([[1]])])
