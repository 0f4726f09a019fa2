"""Rows sorted by key, as far as memory allows: a server with an index writes neighbours together."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

RUN_ROWS = 131_072
RUN_BYTES = 48 << 20
BATCH_ROWS = 32_768


def in_key_order(batches: Iterable[pa.RecordBatch], key: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The same rows in sorted runs; each run is bounded in rows and in bytes."""
    run: list[pa.RecordBatch] = []
    for batch in batches:
        run.append(batch)
        if sum(one.num_rows for one in run) >= RUN_ROWS or sum(one.nbytes for one in run) >= RUN_BYTES:
            yield from _sorted(run, key)
            run = []
    if run:
        yield from _sorted(run, key)


def _sorted(run: list[pa.RecordBatch], key: Sequence[str]) -> Iterator[pa.RecordBatch]:
    table = pa.Table.from_batches(run)
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in key])
    yield from table.take(order).combine_chunks().to_batches(BATCH_ROWS)
