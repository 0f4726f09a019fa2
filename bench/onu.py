"""Rows of tenant A's table as CSV: `python -m bench.onu ROWS FILE [FIRST_ONUID]`. The same arguments give the same bytes."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv

ROWS_AT_ONCE = 500_000


def write_rows(count: int, path: Path, first: int = 0) -> None:
    """`count` rows with consecutive ONUIDs from `first` on."""
    random = np.random.default_rng(7)
    options = pcsv.WriteOptions(quoting_style="needed")
    with pcsv.CSVWriter(path, _rows(np.random.default_rng(7), 0, 0).schema, write_options=options) as writer:
        for start in range(0, count, ROWS_AT_ONCE):
            writer.write_table(_rows(random, first + start, min(ROWS_AT_ONCE, count - start)))


def _rows(random: np.random.Generator, first: int, count: int) -> pa.Table:
    def pick(low: int, high: int) -> np.ndarray:
        return random.integers(low, high, count)

    # The order of the calls decides which values a row gets.
    return pa.table(
        {
            "PROVINCECODE": pa.array(pick(1, 64).astype(str), pa.string()),
            "DEVICEID": _texts("10.%d.%d.%d", pick(0, 255), pick(0, 255), pick(0, 255)),
            "IFINDEX": pick(1, 1 << 28),
            "FRAME": pick(0, 4),
            "SLOT": pick(0, 16),
            "PORT": pick(0, 32),
            "ONUINDEX": pick(0, 128),
            "ONUID": np.arange(first, first + count),
            "TIME": _texts("2024-01-%02d %02d:%02d:00", pick(1, 29), pick(0, 24), pick(0, 60)),
            "SPEEDIN": np.round(random.random(count) * 1e6, 3),
            "SPEEDOUT": np.round(random.random(count) * 1e6, 3),
        }
    )


def _texts(form: str, *columns: np.ndarray) -> pa.Array:
    return pa.array([form % values for values in zip(*columns, strict=True)], pa.string())


if __name__ == "__main__":
    write_rows(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
