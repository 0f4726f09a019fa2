"""Rows as files of one of four formats, and back. The same rows always give the same bytes.

In text formats bytes are hexadecimal digits (CSV: after \\x), decimals and timestamps are text, nested values are JSON. Null
in CSV is an empty cell without quotes. NaN and infinities are text in JSON."""

import csv
import hashlib
import io
from collections.abc import Iterator
from typing import IO, Any

import fastavro
import orjson
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from millrace.sink.encoders.arrow_text import to_csv
from millrace.sink.encoders.json_cells import json_objects
from millrace.sink.files.avro import avro_names, container

_BATCH_ROWS = 32_768


def encode(table: pa.Table, form: str, name: str, out: IO[bytes]) -> None:
    """`name` is the table's; rows keep their order."""
    match form:
        case "parquet":
            pq.write_table(table, out, compression="zstd")
        case "avro":
            sync = hashlib.blake2b(repr((name, table.num_rows, table.schema.names)).encode(), digest_size=16).digest()
            out.writelines(container(table.combine_chunks(), name, sync))
        case "jsonl":
            out.writelines(_json_lines(table))
        case _:
            out.writelines(_csv(table))


def _csv(table: pa.Table) -> Iterator[bytes | memoryview]:
    header = io.StringIO()
    csv.writer(header, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow(table.column_names)
    yield header.getvalue().encode()
    for batch in table.to_batches(_BATCH_ROWS):
        yield to_csv(batch)


def _json_lines(table: pa.Table) -> Iterator[bytes]:
    for batch in table.to_batches(_BATCH_ROWS):
        yield b"\n".join([*json_objects(batch.schema.names, batch.columns), b""])


def decode(body: bytes, form: str, schema: pa.Schema) -> pa.Table:
    """The rows of a file that is to be written again without some of them. Row formats are read row by row."""
    match form:
        case "parquet":
            return pq.read_table(pa.BufferReader(body)).select(schema.names).cast(schema)
        case "avro":
            names = avro_names(schema.names)
            records: Any = fastavro.reader(io.BytesIO(body))
            found: list[Any] = [[row[name] for name in names] for row in records]
        case "jsonl":
            found = [[orjson.loads(line)[name] for name in schema.names] for line in body.splitlines()]
        case _:
            found = list(
                zip(*(column.to_pylist() for column in _texts_of_csv(body, schema.names).columns), strict=True)
            )
    columns = [[row[place] for row in found] for place in range(len(schema))]
    return pa.table([_column(cells, field) for cells, field in zip(columns, schema, strict=True)], schema=schema)


def _texts_of_csv(body: bytes, names: list[str]) -> pa.Table:
    options = pcsv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        include_columns=names,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parsing = pcsv.ParseOptions(newlines_in_values=True)
    reading = pcsv.ReadOptions(block_size=max(1 << 20, len(body)))
    return pcsv.read_csv(pa.BufferReader(body), reading, parsing, options)


def _column(cells: list[Any], field: pa.Field) -> pa.Array:
    kind = field.type
    if pa.types.is_floating(kind):
        return pa.array([None if cell is None else float(cell) for cell in cells], kind)
    texts = [cell for cell in cells if cell is not None]
    if not texts or not all(isinstance(cell, str) for cell in texts) or pa.types.is_string(kind):
        return pa.array(
            [list(cell.items()) if isinstance(cell, dict) and pa.types.is_map(kind) else cell for cell in cells], kind
        )
    if pa.types.is_binary(kind):
        return pa.array([None if cell is None else bytes.fromhex(cell.removeprefix("\\x")) for cell in cells], kind)
    if pa.types.is_nested(kind):
        return _column([None if cell is None else orjson.loads(cell) for cell in cells], field)
    return pa.array(cells, pa.string()).cast(kind)
