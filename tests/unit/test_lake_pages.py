"""A checkpoint is decoded in the reader's own process only if its pages, not its footer, say that it is small."""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap

from millrace.lake.checkpoint import _our_columns
from millrace.lake.checkpoint_columns import _SCHEMA
from millrace.lake.pages import MOST_PLAIN_BYTES, small_checkpoint
from millrace.lake.roaring import checked_positions
from millrace.lake.sums import summed_parquet
from tests.support.hostile_tables import own_checkpoint

BLOCK_BYTES = 24
LONG = "x" * (MOST_PLAIN_BYTES + 1)


def written(*adds: dict[str, Any], **options: Any) -> bytes:
    out = io.BytesIO()
    rows = [{"add": {"path": "p", "size": 1, "modificationTime": 1, **one}} for one in adds]
    plain = {"compression": "zstd", "use_dictionary": False, "store_schema": False}
    pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), out, **{**plain, **options})
    return summed_parquet(out.getvalue())


def is_small(data: bytes) -> bool:
    return small_checkpoint(data, _our_columns()) is not None


def test_ours_are_small(tmp_path: Path) -> None:
    assert is_small(own_checkpoint(tmp_path, files=10_000))
    assert is_small(written({}, {"stats": "s" * 1000}))


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "none"])
def test_a_bomb_is_not(codec: str) -> None:
    assert not is_small(written({"stats": LONG}, compression=codec))


def test_neither_is_one_whose_footer_hides_its_pages() -> None:
    """The footer says nothing of their sizes that is believed: both here have the same."""
    small, bomb = written({"stats": "s"}), written({"stats": LONG})
    told = pq.read_metadata(io.BytesIO(bomb)).row_group(0)
    assert told.total_byte_size > MOST_PLAIN_BYTES
    assert is_small(small)
    assert not is_small(bomb)


def test_nor_one_with_dictionaries_or_other_pages() -> None:
    assert not is_small(written({}, {}, use_dictionary=True))
    assert not is_small(written({}, data_page_version="2.0"))
    other = io.BytesIO()
    pq.write_table(pa.table({"add": [1]}), other)
    assert not is_small(other.getvalue())


@pytest.mark.parametrize("at", range(4, 400, 7))
def test_damaged_pages_are_never_believed_to_be_larger_than_the_limit(at: int) -> None:
    data = bytearray(written({"stats": "s" * 100}, {}))
    data[at] ^= 0xFF
    with pytest.raises(ValueError, match="checksum"):
        small_checkpoint(bytes(data), _our_columns())
    at = len(data) - 8 - int.from_bytes(data[-8:-4], "little") - BLOCK_BYTES
    del data[at : at + BLOCK_BYTES]
    found = small_checkpoint(summed_parquet(bytes(data)), _our_columns())
    if found is not None:
        with found:
            try:
                read = found.read(use_threads=False)
            except (pa.ArrowException, OSError):
                return
            assert read.nbytes < MOST_PLAIN_BYTES


@pytest.mark.parametrize(
    "positions",
    [[], [5], range(0, 300_000, 3), range(200_000), [*range(70_000), 200_000, *range(1 << 20, (1 << 20) + 9000, 2)]],
)
def test_bitmaps_of_the_library_are_valid_and_cut_ones_are_not(positions: Any) -> None:
    for bitmap in (BitMap(positions), BitMap(positions, optimize=False)):
        data = bytes(bitmap.serialize())
        assert checked_positions(data) == len(bitmap)
        for size in range(0, len(data), max(1, len(data) // 50)):
            with pytest.raises(ValueError):
                checked_positions(data[:size])
