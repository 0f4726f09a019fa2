"""A CSV chunk in, the bytes of its cells by column out. Rows with the wrong number of cells are set aside, and a quote that
never closes is found: then the last row would contain everything behind it."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from millrace.formats.csv_rows import row_spans
from millrace.model.chunk import TextLayout
from millrace.validate.faults import RowFault, Rows, same

_BOM = b"\xef\xbb\xbf"
_HIGH_BYTES_HIDDEN = bytes(range(128)) + b"?" * 128


@dataclass(frozen=True, slots=True)
class CsvCells:
    """`columns`: binary arrays by name; null where the cell is the unquoted null text. `positions`: the chunk's row of
    each cell (None: all rows in order). `miscounted`: rows with too many or too few cells, and `counts` how many."""

    columns: dict[str, pa.Array]
    positions: Rows | None
    miscounted: Rows
    counts: Rows
    rows: int


def read_cells(body: bytes, layout: TextLayout, wanted: set[str], *, clean: bool) -> CsvCells:
    """The cells of the wanted columns. `clean`: the body is UTF-8. Raises pyarrow.ArrowInvalid if the body is not CSV."""
    table, miscounted, counts = _read(body, layout, wanted, clean)
    rows = table.num_rows + len(miscounted)
    named = dict(zip(_included(layout, wanted), table.columns, strict=True))
    columns = {layout.columns[place]: _one_array(column) for place, column in named.items()}
    positions = np.delete(np.arange(rows, dtype=np.int64), miscounted) if len(miscounted) else None
    return CsvCells(columns, positions, miscounted, counts, rows)


def _included(layout: TextLayout, wanted: set[str]) -> list[int]:
    return [place for place, name in enumerate(layout.columns) if name in wanted] or [0]


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _read(body: bytes, layout: TextLayout, wanted: set[str], clean: bool) -> tuple[pa.Table, Rows, Rows]:
    if clean:
        return _parse(body, layout, wanted)
    # pyarrow cannot report a miscounted row that is not UTF-8: find such rows with all high bytes masked, and leave them out.
    _, miscounted, counts = _parse(body.translate(_HIGH_BYTES_HIDDEN), layout, set())
    table, _, _ = _parse(_without_rows(body, layout, miscounted) if len(miscounted) else body, layout, wanted)
    return table, miscounted, counts


def _without_rows(body: bytes, layout: TextLayout, rows: Rows) -> bytes:
    spans = row_spans(body, layout.delimiter, layout.quote)
    kept = np.delete(np.arange(len(spans.starts)), rows)
    return b"\n".join(body[start:end] for start, end in zip(spans.starts[kept], spans.ends[kept], strict=True))


def _guarded(body: bytes) -> bytes:
    """Works around pyarrow: it drops a BOM that is part of the first cell, and takes an empty last cell for a quoted one if
    no line end follows."""
    if body.startswith(_BOM):
        body = b"\n" + body
    return body if body.endswith((b"\n", b"\r")) else body + b"\n"


def _parse(body: bytes, layout: TextLayout, wanted: set[str]) -> tuple[pa.Table, Rows, Rows]:
    strays: list[tuple[int, int]] = []

    def set_aside(row: pacsv.InvalidRow) -> str:
        strays.append((row.number - 1, row.actual_columns))
        return "skip"

    # Columns are named by position, so that a file may name an ignored column twice.
    names = [str(place) for place in range(len(layout.columns))]
    included = [str(place) for place in _included(layout, wanted)]
    if body[:1] in b"\r\n" and not body.strip(b"\r\n"):
        table = pa.table({name: pa.array([], pa.binary()) for name in included})
    else:
        text = _guarded(body)
        table = pacsv.read_csv(
            pa.BufferReader(text),
            pacsv.ReadOptions(column_names=names, use_threads=False, block_size=len(text) + 1),
            pacsv.ParseOptions(
                delimiter=layout.delimiter,
                quote_char=layout.quote,
                newlines_in_values=True,
                invalid_row_handler=set_aside,
            ),
            pacsv.ConvertOptions(
                column_types=dict.fromkeys(included, pa.binary()),
                include_columns=included,
                null_values=[layout.null_text],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                check_utf8=False,
            ),
        )
    found = np.array(strays, np.int64).reshape(-1, 2)
    return table, found[:, 0], found[:, 1]


def unclosed_quote(body: bytes, layout: TextLayout, cells: CsvCells) -> list[RowFault]:
    """The fault of the last row if it ends inside quotes."""
    if not cells.rows or not _suspect(body, layout, cells):
        return []
    spans = row_spans(body, layout.delimiter, layout.quote)
    if not _ends_in_quotes(body[spans.starts[-1] :], layout.delimiter.encode(), layout.quote.encode()):
        return []
    return [same(np.array([cells.rows - 1]), None, "unclosed_quote", "has a quote that is never closed")]


def _suspect(body: bytes, layout: TextLayout, cells: CsvCells) -> bool:
    """A cheap test that is true for each chunk that ends inside quotes: its last cell contains the body's last line end."""
    last_row = cells.rows - 1
    if not body.endswith((b"\n", b"\r")) or (len(cells.miscounted) and cells.miscounted[-1] == last_row):
        return True
    last_cell = cells.columns.get(layout.columns[-1])
    return last_cell is None or bool((last_cell[-1].as_py() or b"").endswith((b"\n", b"\r")))


def _ends_in_quotes(row: bytes, delimiter: bytes, quote: bytes) -> bool:
    place = 0
    while True:
        if row.startswith(quote, place):
            place = _behind_closing(row, place + 1, quote)
            if place < 0:
                return True
        place = row.find(delimiter, place) + 1
        if place == 0:
            return False


def _behind_closing(row: bytes, place: int, quote: bytes) -> int:
    while True:
        place = row.find(quote, place)
        if place < 0 or not row.startswith(quote, place + 1):
            return place if place < 0 else place + 1
        place += 2
