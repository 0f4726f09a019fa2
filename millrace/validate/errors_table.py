"""The shape of rejected rows: as a chunk's judgement gives them, and as the error store keeps them."""

import pyarrow as pa

from millrace.model.chunk import ChunkHeader

REASON = pa.struct([("column", pa.string()), ("rule", pa.string()), ("message", pa.string()), ("value", pa.string())])

REJECTED_SCHEMA = pa.schema(
    [
        pa.field("row", pa.int64(), False),
        pa.field("line", pa.int64(), False),
        pa.field("raw", pa.binary(), False),
        pa.field("reasons", pa.list_(REASON), False),
    ]
)

STORED_REJECTED_SCHEMA = pa.schema(
    [*REJECTED_SCHEMA, pa.field("_import", pa.string(), False), pa.field("chunk", pa.int32(), False)]
)


def stored_rejected(header: ChunkHeader, rejected: pa.Table) -> pa.Table:
    """Rejected rows of one chunk, marked with the import and the chunk they came from."""
    count = rejected.num_rows
    marks = [pa.repeat(pa.scalar(header.import_id), count), pa.repeat(pa.scalar(header.number, pa.int32()), count)]
    return pa.table([*rejected.columns, *marks], schema=STORED_REJECTED_SCHEMA)
