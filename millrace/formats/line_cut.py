"""JSON Lines: where its rows are, and how it is cut into pieces. Lines of white space only are no rows.

Refuses a JSON array or an object over many lines."""

import numpy as np

from millrace.formats.bits import Positions
from millrace.formats.csv_rows import CR, LF, Octets, RowSpans
from millrace.formats.pieces import Opening
from millrace.formats.text_cut import RowTally, TextCutter
from millrace.model.errors import Invalid

_SPACES = b" \t\r\n"
_REMEDY = "Send JSON Lines: one object per line, no commas between them (jq -c '.[]' makes it from an array)."
SPACE = 32
_IS_INK = np.ones(256, np.bool_)
_IS_INK[list(b" \t\r\n")] = False


class JsonLines:
    encoding = "jsonl"

    def whole_rows(self, window: bytes, limit: int) -> RowTally | None:
        end = window.rfind(b"\n", 0, limit) + 1
        return self.all_rows(window[:end]) if end else None

    def first_row(self, window: bytes, limit: int) -> RowTally | None:
        end = window.find(b"\n", 0, limit) + 1
        return self.all_rows(window[:end]) if end else None

    def all_rows(self, body: bytes) -> RowTally:
        octets = np.frombuffer(body, np.uint8)
        feeds = np.flatnonzero(octets == LF)
        filled = filled_lines(octets, np.append(0, feeds + 1), np.append(feeds, len(body)))
        return RowTally(len(body), int(np.count_nonzero(filled)), len(feeds))

    def first_line(self, window: bytes) -> int | None:
        return window.find(b"\n") + 1 or None

    def open_lines(self, body: bytes, most: int) -> list[tuple[int, int]]:
        return []


def json_lines_cutter(opening: Opening) -> TextCutter:
    what = opening.options.what

    def check_start(text: bytes) -> None:
        start = text.lstrip(_SPACES)
        if start.startswith(b"["):
            raise Invalid(f"{what} is a JSON array.", remedy=_REMEDY)
        if start.partition(b"\n")[0].strip(_SPACES) == b"{" and b"\n" in start:
            raise Invalid(f"{what} is JSON with an object over many lines.", remedy=_REMEDY)

    return TextCutter(JsonLines(), None, opening.limits, check_start=check_start, resume=opening.resume)


def line_spans(body: bytes) -> RowSpans:
    """The rows of a text that begins at the start of a line."""
    octets = np.frombuffer(body, np.uint8)
    feeds = np.flatnonzero(octets == LF)
    starts = np.concatenate(([0], feeds + 1))
    ends = np.append(feeds, len(body))
    filled = filled_lines(octets, starts, ends)
    starts, ends = starts[filled], ends[filled]
    return RowSpans(starts, ends - (octets[ends - 1] == CR), np.flatnonzero(filled))


def filled_lines(octets: Octets, starts: Positions, ends: Positions) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of the lines hold anything but white space."""
    filled = ends > starts
    suspects = np.flatnonzero(filled)[octets[starts[filled]] <= SPACE]
    if len(suspects):
        ink = np.concatenate(([0], np.cumsum(_IS_INK[octets])))
        filled[suspects] = ink[ends[suspects]] > ink[starts[suspects]]
    return filled
