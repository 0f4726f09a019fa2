"""What pyarrow alone reaches: `python -m bench.limit FILE` reads tenant A's CSV on every core and writes Parquet, without
Kafka, Spark or checks. Prints {"rows", "seconds", "rows_per_second"}."""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

PIECE_BYTES = 64 << 20
BLOCK_BYTES = 8 << 20
_INTEGERS = ("IFINDEX", "FRAME", "SLOT", "PORT", "ONUINDEX", "ONUID")
TYPES = {
    "PROVINCECODE": pa.string(),
    "DEVICEID": pa.string(),
    **dict.fromkeys(_INTEGERS, pa.int32()),
    "TIME": pa.string(),
    "SPEEDIN": pa.float64(),
    "SPEEDOUT": pa.float64(),
}
Piece = tuple[Path, int, int, Path]


def convert(piece: Piece) -> int:
    path, start, end, target = piece
    with path.open("rb") as file:
        file.seek(start)
        body = file.read(end - start)
    reading = pcsv.ReadOptions(column_names=list(TYPES), use_threads=False, block_size=BLOCK_BYTES)
    converting = pcsv.ConvertOptions(column_types=TYPES, strings_can_be_null=False)
    table = pcsv.read_csv(pa.BufferReader(body), read_options=reading, convert_options=converting)
    pq.write_table(table, target, compression="zstd")
    return int(table.num_rows)


def pieces(path: Path, folder: Path) -> Iterator[Piece]:
    """Whole rows each; the header is left out."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.readline()
        start = file.tell()
        while start < size:
            file.seek(min(start + PIECE_BYTES, size))
            file.readline()
            end = min(file.tell(), size)
            yield path, start, end, folder / f"{start}.parquet"
            start = end


def measure(path: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        with get_context("spawn").Pool(os.cpu_count()) as pool:
            rows = sum(pool.imap_unordered(convert, pieces(path, Path(folder))))
        seconds = time.perf_counter() - begun
    return {"rows": rows, "seconds": round(seconds, 3), "rows_per_second": round(rows / seconds)}


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]))))
