"""One chunk and its definition in; accepted rows, rejected rows and the verdict out. Judged twice, it is the same twice.

A row's verdict depends on the row and the definition alone. A chunk that cannot be read at all is a failed verdict, never
an exception; it keeps one rejected record with the beginning of its body."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from millrace.model.chunk import ChunkHeader, Verdict
from millrace.model.columns import stored_schema
from millrace.model.table import Definition
from millrace.validate.errors_table import REJECTED_SCHEMA
from millrace.validate.faults import Rows, reasons_by_row, same
from millrace.validate.from_arrow import parse_arrow
from millrace.validate.from_avro import parse_avro
from millrace.validate.from_csv import parse_csv
from millrace.validate.from_jsonl import parse_jsonl
from millrace.validate.json_values import bare
from millrace.validate.parsed import Parsed, Undecodable

MAX_FAILED_BYTES = 64 * 1024

_PARSERS: dict[str, Callable[[ChunkHeader, bytes, Definition], Parsed]] = {
    "csv": parse_csv,
    "jsonl": parse_jsonl,
    "arrow": parse_arrow,
    "avro": parse_avro,
}


@dataclass(frozen=True, slots=True)
class Judged:
    """`accepted` has the stored schema, `rejected` that of the errors table; it is None where no row was rejected."""

    accepted: pa.Table
    rejected: pa.Table | None
    verdict: Verdict


def judge(header: ChunkHeader, body: bytes, definition: Definition) -> Judged:
    """The verdict on every row of a chunk whose body is decompressed and has the checksum of its header."""
    definition = _plainly_typed(definition)
    if header.oversize is not None:
        return _refused_whole(header, body, definition, header.oversize.rule, header.oversize.message, failure=None)
    try:
        parsed = _parse(header, body, definition)
    except Undecodable as error:
        return _refused_whole(
            header, body[:MAX_FAILED_BYTES], definition, "undecodable", str(error), failure=str(error)
        )
    if not parsed.faults:
        return Judged(_accepted(header, parsed, definition, None), None, _verdict(header, rejected=0))
    bad, reasons = reasons_by_row(parsed.faults)
    originals = parsed.originals(bad)
    lines = np.zeros(len(bad), np.int64) if originals.lines is None else originals.lines + header.first_line
    rejected = pa.table([header.first_row + bad, lines, originals.raw, reasons], schema=REJECTED_SCHEMA)
    return Judged(_accepted(header, parsed, definition, bad), rejected, _verdict(header, rejected=len(bad)))


def _plainly_typed(definition: Definition) -> Definition:
    """Types may be written with needless wrapping; everything below looks at them without."""
    if all(bare(column.avro) is column.avro for column in definition.columns):
        return definition
    return replace(definition, columns=tuple(replace(column, avro=bare(column.avro)) for column in definition.columns))


def ignore(header: ChunkHeader, definition: Definition) -> Judged:
    """The verdict on a chunk whose import was stopped before its turn."""
    verdict = Verdict(
        header.import_id, header.number, header.version, header.rows, 0, 0, header.rows, checksum=header.checksum
    )
    return Judged(_none_accepted(definition), None, verdict)


def fail(header: ChunkHeader, body: bytes, definition: Definition, message: str) -> Judged:
    """The verdict on a chunk that cannot be judged at all."""
    return _refused_whole(header, body[:MAX_FAILED_BYTES], definition, "undecodable", message, failure=message)


def _parse(header: ChunkHeader, body: bytes, definition: Definition) -> Parsed:
    parser = _PARSERS.get(header.encoding)
    if parser is None:
        raise Undecodable(f"The chunk's encoding {header.encoding!r} is unknown.")
    parsed = parser(header, body, definition)
    if parsed.rows != header.rows:
        raise Undecodable(f"The chunk holds {parsed.rows} rows, its stamp says {header.rows}.")
    return parsed


def _accepted(header: ChunkHeader, parsed: Parsed, definition: Definition, bad: Rows | None) -> pa.Table:
    positions = np.arange(parsed.rows, dtype=np.int64) if parsed.positions is None else parsed.positions
    columns = pa.table(parsed.columns, names=[column.name for column in definition.columns])
    if bad is not None:
        good = np.ones(parsed.rows, bool)
        good[bad] = False
        kept = good[positions]
        positions = positions[kept]
        columns = columns.filter(pa.array(kept))
    own = [
        pa.repeat(pa.scalar(header.version, pa.int64()), len(positions)),
        pa.repeat(pa.scalar(header.import_id), len(positions)),
        pa.array(positions + header.first_row),
    ]
    return pa.table([*columns.columns, *own], schema=stored_schema(definition.columns))


def _none_accepted(definition: Definition) -> pa.Table:
    return stored_schema(definition.columns).empty_table()


def _refused_whole(
    header: ChunkHeader, raw: bytes, definition: Definition, rule: str, message: str, *, failure: str | None
) -> Judged:
    _, reasons = reasons_by_row([same(np.zeros(1, np.int64), None, rule, message)])
    record = [pa.array([header.first_row]), pa.array([header.first_line]), pa.array([raw], pa.binary()), reasons]
    verdict = _verdict(header, rejected=header.rows, failure=failure)
    return Judged(_none_accepted(definition), pa.table(record, schema=REJECTED_SCHEMA), verdict)


def _verdict(header: ChunkHeader, *, rejected: int, failure: str | None = None) -> Verdict:
    return Verdict(
        header.import_id,
        header.number,
        header.version,
        header.rows,
        header.rows - rejected,
        rejected,
        failure=failure,
        checksum=header.checksum,
    )
