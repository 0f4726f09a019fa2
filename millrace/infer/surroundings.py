"""Lines of a CSV file that are no rows: titles before the header, Excel's `sep=;`, totals at the end. Text in, places out."""

import re
from dataclasses import dataclass

from millrace.formats.csv_cut import DELIMITERS
from millrace.formats.csv_rows import row_spans
from millrace.infer.csv_dialect import CsvGuess, whole_lines, written_as
from millrace.infer.csv_header import is_heading

_SEP = re.compile(rb'"?sep=(.)"?[ \t]*(?:\r\n|\r|\n|$)', re.IGNORECASE)
_MOST_LINES = 10
_FEWEST_ROWS, _FEWEST_CELLS = 3, 3
_MOST_STRAYS = 0.1
_TOTAL = re.compile(
    r"(?:(?:grand |sub)?totals?|sums?|summe|gesamt(?:summe)?|insgesamt|totale|totaal|total général|suma|razem|итого)\b.*"
    r"|\(?[0-9]+ rows?(?: selected)?\)?",
    re.IGNORECASE,
)
_LAST_ROWS = 3
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Lead:
    """What stands before the header: how many lines that are not blank, their length in octets, and the dialect of the rows
    behind them."""

    lines: int
    size: int
    written: CsvGuess
    text: str = ""
    is_sep: bool = False


@dataclass(frozen=True, slots=True)
class Footer:
    """A row at the end that is no row of the table: its line in the file, and where it starts in the text."""

    line: int
    start: int
    text: str


def lead_of(text: bytes) -> Lead:
    """`text` begins at the start of the file, without blank lines."""
    sep = _SEP.match(text)
    if sep and sep.group(1).decode("latin-1") in DELIMITERS:
        return Lead(1, sep.end(), written_as(_behind_blank(text, sep.end())), sep.group().decode().strip(), is_sep=True)
    plain = written_as(text)
    if not _may_be_title(plain):
        return Lead(0, 0, plain)
    size, head = 0, whole_lines(text)
    for lines in range(1, _MOST_LINES + 1):
        line = re.compile(rb"[^\r\n]*[\r\n]+").match(head, size)
        if line is None:
            break
        size = line.end()
        found = written_as(head[size:])
        if _is_table(found) and is_heading(head[size:], found, proved=True):
            return Lead(lines, size, found, _shown(head[:size]))
    return Lead(0, 0, plain)


def _behind_blank(text: bytes, place: int) -> bytes:
    return text[place:].lstrip(b"\r\n")


def _shown(line: bytes) -> str:
    return line.decode("utf-8", "replace").splitlines()[0].strip(" \t,;|")[:_SHOWN]


def _may_be_title(found: CsvGuess) -> bool:
    """Whether the first row is a title: a single cell, or one with nothing but empty cells behind it."""
    cells = [cell.strip() for cell in found.first_row]
    return bool(cells[0]) and not any(cells[1:]) and len(cells) not in range(2, _FEWEST_CELLS)


def _is_table(found: CsvGuess) -> bool:
    cells = [cell.strip() for cell in found.first_row]
    agrees = found.strays <= found.rows * _MOST_STRAYS
    return len(cells) > 1 and all(cells) and agrees and found.rows >= _FEWEST_ROWS


def footers_of(text: bytes, written: CsvGuess, lines_before: int) -> list[Footer]:
    """Totals among the last rows: the first cell says so, and other cells are empty or missing. `text` is a whole file from
    its header on."""
    spans = row_spans(text, written.delimiter, written.quote)
    found: list[Footer] = []
    last = range(len(spans.starts) - 1, max(0, len(spans.starts) - 1 - _LAST_ROWS), -1)
    for row in last:
        start, end = int(spans.starts[row]), int(spans.ends[row])
        cells = text[start:end].decode("utf-8", "replace").split(written.delimiter)
        cells = [cell.strip(f" \t{written.quote}") for cell in cells]
        first = next(filter(None, cells), "")
        few = len(cells) != len(written.first_row) or cells.count("") > 0
        if not (_TOTAL.fullmatch(first) and few and len(written.first_row) > 1):
            break
        found.append(Footer(lines_before + int(spans.lines[row]) + 1, start, first[:_SHOWN]))
    return found[::-1]
