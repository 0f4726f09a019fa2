"""Finds a quote that never closes: then the last row of a chunk would contain everything behind the quote."""

import numpy as np

from millrace.formats.csv_rows import row_spans
from millrace.model.chunk import TextLayout
from millrace.validate.csv_cells import CsvCells
from millrace.validate.faults import RowFault, same


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
