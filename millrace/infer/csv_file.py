"""A sample of a CSV file in, the draft of its table out."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from millrace.formats.csv_rows import row_spans
from millrace.infer.agreeing import agreed
from millrace.infer.csv_columns import CsvColumns
from millrace.infer.csv_dialect import CsvGuess, cells_of, layout_of
from millrace.infer.csv_header import is_heading, row_end
from millrace.infer.draft import Draft, Drafted, unusable, with_key
from millrace.infer.guessing import ColumnGuess
from millrace.infer.keys import KeyFinder
from millrace.infer.sampling import UTF8, FileSample, as_utf8, encoding_of, western_encoding
from millrace.infer.surroundings import Footer, Lead, footers_of, lead_of
from millrace.model.chunk import TextLayout
from millrace.model.column_names import plain_names
from millrace.model.columns import MAX_COLUMNS
from millrace.model.errors import Invalid
from millrace.model.table import CsvDialect
from millrace.validate.cells import is_utf8

_AT_ONCE = 1 << 20


def draft_csv(sample: FileSample, table: str) -> Drafted:
    encoding = encoding_of(sample)
    text = as_utf8(sample, encoding)
    lead = lead_of(_start(text.head))
    if encoding == UTF8 and not is_utf8(_first_row(text.head, lead)):
        # Names of columns must be UTF-8. So these bytes are not damage: the file has another encoding.
        encoding = western_encoding(sample)
        text = as_utf8(sample, encoding)
        lead = lead_of(_start(text.head))
    written = lead.written
    if len(written.first_row) > MAX_COLUMNS:
        raise Invalid(f"The file has {len(written.first_row)} columns.", remedy=f"A table has up to {MAX_COLUMNS}.")
    head = _rows(text.head, lead)
    lines_before = _line_ends(text.head[: len(text.head) - len(head)])
    footers = footers_of(head, written, lines_before) if text.is_whole else []
    header = is_heading(head, written)
    rows = head[: footers[0].start] if footers else head
    layout = layout_of(len(written.first_row), written.delimiter, written.quote)
    bodies = _bodies(rows[row_end(rows, written) :] if header else rows, text, layout)
    dialect = CsvDialect(header, written.delimiter, written.quote, "", encoding, skip_lines=lead.lines if header else 0)
    draft = Draft(table, "csv", (), csv=dialect, remarks=tuple(_remarks(lead, footers, header=header)))
    return _drawn(replace(draft, footers=tuple(footer.line for footer in footers)), written, layout, bodies)


def _start(head: bytes) -> bytes:
    """The text without blank lines at its start."""
    return head.lstrip(b"\r\n")


def _rows(head: bytes, lead: Lead) -> bytes:
    """The text from the header on."""
    return _start(_start(head)[lead.size :])


def _first_row(head: bytes, lead: Lead) -> bytes:
    rows = _rows(head, lead)
    return rows[: row_end(rows, lead.written)]


def _line_ends(text: bytes) -> int:
    return text.count(b"\n") or text.count(b"\r")


def _remarks(lead: Lead, footers: Sequence[Footer], *, header: bool) -> Iterator[str]:
    if lead.is_sep:
        what = "It is skipped (csv.skip_lines)" if header else "Remove it: without a header it would be a row"
        yield f"The first line ({lead.text!r}) names the delimiter for Excel. {what}."
    elif lead.lines:
        lines = "A line stands" if lead.lines == 1 else f"{lead.lines} lines stand"
        yield f"{lines} before the header and are skipped (csv.skip_lines): {lead.text!r}."
    for footer in footers:
        row = f"The row in line {footer.line:,} ({footer.text!r})"
        yield f"{row} looks like a total and not like a row: remove it from the file."


def _bodies(head: bytes, text: FileSample, layout: TextLayout) -> list[bytes]:
    """The sample in bodies of whole rows."""
    spans = row_spans(head, layout.delimiter, layout.quote)
    if not len(spans.starts):
        return []
    # A head that is not the whole file may end inside a row.
    end = len(head) if text.is_whole else int(spans.starts[-1])
    bounds, start = [], 0
    for at in spans.starts[1:].tolist():
        if at - start >= _AT_ONCE and at <= end:
            bounds.append((start, at))
            start = at
    bodies = [head[first:last] for first, last in [*bounds, (start, end)] if last > first]
    return bodies + [body for piece in text.pieces if (body := _aligned(piece, layout))]


def _aligned(piece: bytes, layout: TextLayout) -> bytes:
    """The whole rows of a piece that begins anywhere, read as if outside quotes; or inside, if its rows agree better so."""
    outside = _whole_rows(piece, layout)
    if layout.quote.encode() not in piece or not _strays(outside, layout):
        return outside
    inside = _whole_rows(layout.quote.encode() + piece, layout)
    return inside if _strays(inside, layout) < _strays(outside, layout) else outside


def _whole_rows(piece: bytes, layout: TextLayout) -> bytes:
    starts = row_spans(piece, layout.delimiter, layout.quote).starts
    return piece[int(starts[1]) : int(starts[-1])] if len(starts) > 2 else b""


def _strays(body: bytes, layout: TextLayout) -> int:
    cells = cells_of(body, layout, ()) if body else None
    return len(cells.miscounted) if cells else 0


def _drawn(draft: Draft, written: CsvGuess, layout: TextLayout, bodies: Sequence[bytes]) -> Drafted:
    """The draft with its columns."""
    assert draft.csv is not None
    titles = [title.strip() for title in written.first_row] if draft.csv.header else _numbered(len(layout.columns))
    names, refused = plain_names(titles), unusable(titles)
    columns, watch = CsvColumns(layout, written if draft.csv.header else None), KeyFinder()
    for body in bodies:
        before = columns.rows
        cells = columns.add(body)
        watch.add({names[int(place)]: column for place, column in cells.items()}, columns.rows - before)
    places = {names[int(place)]: place for place in layout.columns if titles[int(place)] not in refused}
    guesses = [columns.guess(place, name) for name, place in places.items()]
    guesses = agreed(guesses, layout.delimiter, lambda name: columns.text(places[name]))
    null_text = _null_text(guesses, columns, places)
    found = []
    for guess in guesses:
        title = titles[int(places[guess.column.name])]
        column = replace(guess.column, header=None if title == guess.column.name else title)
        if null_text:
            column = replace(column, written=replace(column.written, null_texts=()))
        found.append(column)
    remarks = [f"Column {guess.column.name!r} {remark}." for guess in guesses for remark in guess.remarks]
    draft = replace(
        draft,
        columns=tuple(found),
        csv=replace(draft.csv, null_text=null_text),
        left_out=refused,
        remarks=(*draft.remarks, *remarks),
    )
    return Drafted(with_key(draft, watch), columns.rows)


def _numbered(count: int) -> list[str]:
    return [f"column_{number}" for number in range(1, count + 1)]


def _null_text(guesses: Sequence[ColumnGuess], columns: CsvColumns, places: dict[str, str]) -> str:
    """The one word that means null in the whole file: no empty cell does, and no column holds it as a value. Else nothing."""
    words = {word for guess in guesses for word in guess.column.written.null_texts}
    word = words.pop() if len(words) == 1 else ""
    # A dash may be a value in the next file.
    if not any(map(str.isalpha, word)) or any(columns.nulls(place) for place in places.values()):
        return ""
    valued = [guess for guess in guesses if not guess.column.written.null_texts]
    return "" if any(columns.holds(places[guess.column.name], word) for guess in valued) else word
