"""Labelled tab-separated values (`id:1<TAB>name:Ann`): a whole file format in one file, as a contributor would write it."""

from dataclasses import replace

import pyarrow as pa

from millrace.formats.line_cut import JsonLines, line_spans
from millrace.formats.pieces import Cutter, Opening
from millrace.formats.text_cut import TextCutter
from millrace.infer.draft import Draft, Drafted, proposed, with_key
from millrace.infer.evidence import bytes_evidence
from millrace.infer.keys import KeyFinder
from millrace.infer.sampling import FileSample
from millrace.model.chunk import ChunkHeader
from millrace.validate.faults import Rows
from millrace.validate.from_arrow import parse_table
from millrace.validate.parsed import Originals, Parsed, Reading, slices


class LabelledLines(JsonLines):
    encoding = "ltsv"


def cutter(opening: Opening) -> Cutter:
    return TextCutter(LabelledLines(), None, opening.limits, resume=opening.resume)


def parse(header: ChunkHeader, body: bytes, reading: Reading) -> Parsed:
    spans = line_spans(body)

    def originals(rows: Rows) -> Originals:
        return Originals(slices(body, spans.starts, spans.ends, rows), spans.lines[rows])

    return replace(parse_table(_table(body), reading, {}), originals=originals)


def draft(sample: FileSample, table: str) -> Drafted:
    cells = _table(sample.head)
    columns = [proposed(name, bytes_evidence(cells[name].combine_chunks())) for name in cells.column_names]
    watch = KeyFinder()
    watch.add({name: cells[name].combine_chunks() for name in cells.column_names}, cells.num_rows)
    return Drafted(with_key(Draft(table, "ltsv", tuple(filter(None, columns))), watch), cells.num_rows)


def _table(body: bytes) -> pa.Table:
    rows = [dict(cell.split(b":", 1) for cell in line.split(b"\t")) for line in body.split(b"\n") if line.strip()]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name.decode(): pa.array([row.get(name) for row in rows], pa.binary()) for name in names})
