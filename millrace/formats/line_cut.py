"""Cuts JSON Lines into pieces: the row rule, and a check of the start. Refuses a JSON array or an object over many lines."""

import numpy as np

from millrace.formats.csv_rows import LF
from millrace.formats.line_rows import filled_lines
from millrace.formats.pieces import Opening
from millrace.formats.text_cut import RowTally, TextCutter
from millrace.model.errors import Invalid

_SPACES = b" \t\r\n"
_REMEDY = "Send JSON Lines: one object per line, no commas between them (jq -c '.[]' makes it from an array)."


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
