"""The schemas of rejected rows: as the judge returns them, and as the error store keeps them."""

import pyarrow as pa

from millrace.arrow.types import OWN_COLUMNS
from millrace.model.chunk import ChunkHeader, ChunkVerdict

# The rule of a row that was accepted and then refused by a sink. The sink's name follows. The row's bytes are not kept.
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
    """Rejected rows of one chunk, with the columns for their import and chunk."""
    count = rejected.num_rows
    marks = [
        pa.repeat(pa.scalar(origin.number, pa.int32()), count),
        pa.repeat(pa.scalar(origin.version, pa.int64()), count),
        pa.repeat(pa.scalar(origin.import_id), count),
        rejected["row"],
    ]
    return pa.table([*rejected.columns, *marks], schema=STORED_REJECTED_SCHEMA)
