"""The shape of rejected rows: as a chunk's judgement gives them, and as the error store keeps them."""

import pyarrow as pa

from millrace.arrow.types import OWN_COLUMNS
from millrace.model.chunk import ChunkHeader, ChunkVerdict

# Of a row that was accepted and then refused by the sink whose name follows; its bytes are not kept.
SINK_RULE = "sink:"
REASON = pa.struct([("column", pa.string()), ("rule", pa.string()), ("message", pa.string()), ("value", pa.string())])

REJECTED_SCHEMA = pa.schema(
    [
        pa.field("row", pa.int64(), False),
        pa.field("line", pa.int64(), False),
        pa.field("raw", pa.binary(), False),
        pa.field("reasons", pa.list_(REASON), False),
    ]
)

ERRORS_SCHEMA = pa.schema([*REJECTED_SCHEMA, pa.field("chunk", pa.int32(), False)])

STORED_REJECTED_SCHEMA = pa.schema([*ERRORS_SCHEMA, *OWN_COLUMNS])


def stored_rejected(origin: ChunkHeader | ChunkVerdict, rejected: pa.Table) -> pa.Table:
    """Rejected rows of one chunk, marked with the import and the chunk they came from."""
    count = rejected.num_rows
    marks = [
        pa.repeat(pa.scalar(origin.number, pa.int32()), count),
        pa.repeat(pa.scalar(origin.version, pa.int64()), count),
        pa.repeat(pa.scalar(origin.import_id), count),
        rejected["row"],
    ]
    return pa.table([*rejected.columns, *marks], schema=STORED_REJECTED_SCHEMA)
