"""One chunk and its definition in; accepted rows, rejected rows and the verdict out. The result never changes.

A row's verdict depends on the row, the definition and the chunk's version alone. A chunk that cannot be read at all gets a
failed verdict, never an exception. Then one rejected record keeps the start of its body."""

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from millrace.arrow.types import stored_schema
from millrace.lake.errors_table import REJECTED_SCHEMA
from millrace.model.chunk import ChunkHeader, ChunkVerdict
from millrace.model.formats import every_format, format_of_chunks, load
from millrace.model.table import Definition
from millrace.validate.accepted import Keys, accepted_rows, chunk_facts, numbered
from millrace.validate.deletes import sort_out
from millrace.validate.faults import RowFault, Rows, reasons_by_row, same
from millrace.validate.parsed import Parsed, Reading, Undecodable, reading_of
from millrace.validate.row_rules import BrokenRules, check_rows

MAX_FAILED_BYTES = 64 * 1024

# Workers are forked from a process that imported this module, and share what is loaded here.
for _each in every_format():
    load(_each.parser)


@dataclass(frozen=True, slots=True)
class JudgedChunk:
    """`accepted` has the stored schema. `rejected` has the schema of the errors table; it is None if no row was rejected.

    `keys` holds the hashed keys for rules that rows are unique in their import."""

    accepted: pa.Table
    rejected: pa.Table | None
    verdict: ChunkVerdict
    keys: Keys = field(default_factory=dict)


def judge(header: ChunkHeader, body: bytes, definition: Definition) -> JudgedChunk:
    """The verdict on every row of a chunk whose body is decompressed and has the checksum of its header."""
    if header.oversize is not None:
        return _refused_whole(header, body, definition, header.oversize.rule, header.oversize.message, failure=None)
    reading = reading_of(header, definition)
    try:
        parsed = _parse(header, body, reading)
    except Undecodable as error:
        return fail(header, body, definition, str(error))
    faults, deleted = sort_out(parsed, reading.keys, all_delete=header.deletes)
    if parsed.repeats is not None and len(parsed.repeats):
        faults = _told_once(faults, parsed.repeats)
    has_rules = bool(definition.rules) and not header.deletes
    broken = check_rows(parsed, reading, definition, header.version, deleted, faults) if has_rules else BrokenRules()
    faults = faults + broken.faults
    bad, rejected = _rejected(header, parsed, faults) if faults else (None, None)
    accepted = accepted_rows(header, parsed, reading, definition, bad, deleted)
    verdict = _verdict(header, rejected=0 if bad is None else len(bad))
    if not has_rules:
        return JudgedChunk(accepted, rejected, verdict)
    facts, keys = chunk_facts(header, definition, accepted, broken, bad)
    return JudgedChunk(accepted, rejected, replace(verdict, quality=facts), keys)


def _told_once(faults: list[RowFault], repeats: Rows) -> list[RowFault]:
    """The faults with one for each row that repeats the header: that its cells are no values says nothing more."""
    others = [fault.only(np.flatnonzero(~np.isin(fault.rows, repeats))) for fault in faults]
    kept = [fault for fault in others if len(fault.rows)]
    return [*kept, same(repeats, None, "repeated_header", "repeats the header of the file")]


def _rejected(header: ChunkHeader, parsed: Parsed, faults: list[RowFault]) -> tuple[Rows, pa.Table]:
    bad, reasons = reasons_by_row(faults)
    originals = parsed.originals(bad)
    # Replayed rows come from all over a file: their lines here are not their lines in the file.
    known = originals.lines if header.row_numbers is None else None
    lines = np.zeros(len(bad), np.int64) if known is None else known + header.first_line
    return bad, pa.table([numbered(header, bad), lines, originals.raw, reasons], schema=REJECTED_SCHEMA)


def ignore(header: ChunkHeader, definition: Definition) -> JudgedChunk:
    """The verdict on a chunk whose import was stopped before its turn."""
    verdict = ChunkVerdict(
        header.import_id, header.number, header.version, header.rows, 0, 0, header.rows, checksum=header.checksum
    )
    return JudgedChunk(_none_accepted(definition), None, verdict)


def fail(header: ChunkHeader, body: bytes, definition: Definition, message: str) -> JudgedChunk:
    """The verdict on a chunk that cannot be judged at all."""
    return _refused_whole(header, body[:MAX_FAILED_BYTES], definition, "undecodable", message, failure=message)


def _parse(header: ChunkHeader, body: bytes, reading: Reading) -> Parsed:
    found = format_of_chunks(header.encoding)
    if found is None:
        raise Undecodable(f"The chunk's encoding {header.encoding!r} is unknown.")
    if header.row_numbers is not None and len(header.row_numbers) != header.rows:
        raise Undecodable(f"The chunk's stamp numbers {len(header.row_numbers)} rows of {header.rows}.")
    parsed: Parsed = load(found.parser)(header, body, reading)
    if parsed.rows != header.rows:
        raise Undecodable(f"The chunk holds {parsed.rows} rows, its stamp says {header.rows}.")
    return parsed


def _none_accepted(definition: Definition) -> pa.Table:
    return stored_schema(definition.columns).empty_table()


def _refused_whole(
    header: ChunkHeader, raw: bytes, definition: Definition, rule: str, message: str, *, failure: str | None
) -> JudgedChunk:
    _, reasons = reasons_by_row([same(np.zeros(1, np.int64), None, rule, message)])
    row = header.row_numbers[0] if header.row_numbers else header.first_row
    record = [pa.array([row]), pa.array([header.first_line]), pa.array([raw], pa.binary()), reasons]
    verdict = _verdict(header, rejected=header.rows, failure=failure)
    return JudgedChunk(_none_accepted(definition), pa.table(record, schema=REJECTED_SCHEMA), verdict)


def _verdict(header: ChunkHeader, *, rejected: int, failure: str | None = None) -> ChunkVerdict:
    return ChunkVerdict(
        header.import_id,
        header.number,
        header.version,
        header.rows,
        header.rows - rejected,
        rejected,
        failure=failure,
        checksum=header.checksum,
    )
