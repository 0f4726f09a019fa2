"""Rows of a delivery as one table, each with the chunk it belongs to."""

import polars as pl
import pyarrow as pa

from millrace.arrow.types import stored_schema
from millrace.model.columns import DELETED_COLUMN
from millrace.model.table import Definition
from millrace.sink.connector import Rows

CHUNK = "_chunk"


def with_chunks(rows: Rows, definition: Definition) -> pa.Table:
    """Each row with its chunk, found by import and version. Rows that are older than the sink have the chunk of their
    version, or the only chunk. Every row gets one."""
    batches = list(rows.open())
    empty = pa.schema([*stored_schema(definition.columns), pa.field(DELETED_COLUMN, pa.bool_())]).empty_table()
    table = pa.Table.from_batches(batches) if batches else empty
    pairs = pl.DataFrame(
        {CHUNK: rows.chunks, "_version": rows.versions}, schema={CHUNK: pl.String, "_version": pl.Int64}
    )
    exact = pairs.with_columns(_import=pl.col(CHUNK).str.replace(r"/[^/]*$", ""))
    found = (
        pl.DataFrame({name: pl.Series(table[name]) for name in ("_import", "_version")})
        .join(exact, on=["_import", "_version"], how="left", maintain_order="left")
        .join(pairs.unique("_version", keep="first"), on="_version", how="left", maintain_order="left", suffix="_else")
        .select(pl.coalesce(CHUNK, f"{CHUNK}_else", pl.lit(rows.chunks[0])))
    )
    return table.append_column(CHUNK, found.to_series().to_arrow().cast(pa.string()))
