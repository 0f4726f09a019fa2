"""Cuts text at row ends while it arrives: bytes and a row rule in, pieces out. A row over the limit is cut short.

The cutter holds at most one row limit and one step of bytes, and looks at each octet a few times at most."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from millrace.formats.pieces import CutPiece, PieceLimits, ResumePoint
from millrace.model.chunk import Oversize, TextLayout
from millrace.model.errors import Invalid

STEP_BYTES = 256 << 10
# Each unclosed quote costs a scan of the longest allowed row: without a limit a crafted file would take quadratic time.
MAX_UNCLOSED = 1000
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class RowTally:
    """The rows and line ends before `end`."""

    end: int
    rows: int
    lines: int


class RowRule(Protocol):
    """Says where rows end. A window begins at the start of a row and includes one octet behind the limit, if there is one."""

    @property
    def encoding(self) -> str: ...

    def whole_rows(self, window: bytes, limit: int) -> RowTally | None:
        """Up to the last row end at or before the limit."""

    def first_row(self, window: bytes, limit: int) -> RowTally | None:
        """Up to the first row end at or before the limit."""

    def all_rows(self, body: bytes) -> RowTally:
        """All rows. The last row needs no line end."""

    def first_line(self, window: bytes) -> int | None:
        """The position behind the first line end, whether it ends a row or not."""

    def open_lines(self, body: bytes, most: int) -> list[tuple[int, int]]:
        """Start and end of the first lines whose row never ends in the text. Reading continues behind each."""


class TextCutter:
    """`read_head` gets the first row and its line number, and returns the layout of the other rows; or None if the row is not
    the header, then it gets the next. `without_repeats` gets
    rows, and returns them with an empty line in place of each row that repeats the header, and the number of these."""

    def __init__(
        self,
        rule: RowRule,
        layout: TextLayout | None,
        limits: PieceLimits,
        *,
        read_head: Callable[[bytes, int], TextLayout | None] | None = None,
        check_start: Callable[[bytes], None] | None = None,
        without_repeats: Callable[[bytes, TextLayout], tuple[bytes, int]] | None = None,
        resume: ResumePoint | None = None,
    ) -> None:
        self._rule = rule
        self._layout = layout
        self._limits = limits
        self._read_head = read_head
        self._check_start = check_start
        self._without_repeats = without_repeats
        self._buffer = bytearray()
        self._wanted = self._limits.piece_bytes
        self._long_row: bytes | None = None
        # The lines with a quote that never closes, as offsets, the next line last. Known only at the end of the text.
        self._open_lines: list[tuple[int, int]] | None = None
        self._offset, self._row, self._line, self._unclosed, self._repeats = 0, 1, 1, 0, 0
        self._yielded = self._started = resume is not None
        if resume is not None:
            self._read_head = None
            self._offset, self._row = resume["offset"], resume["row"]
            self._line, self._unclosed = resume["line"], resume["unclosed"]
            self._repeats = resume.get("repeated_headers", 0)

    def feed(self, piece: bytes) -> Iterator[CutPiece]:
        view = memoryview(piece)
        for start in range(0, len(view), STEP_BYTES):
            self._buffer += view[start : start + STEP_BYTES]
            yield from self._advance(last=False)

    def finish(self) -> Iterator[CutPiece]:
        yield from self._advance(last=True)
        if self._read_head is not None:
            raise Invalid(
                "The file is empty: it does not even have a header.",
                remedy="Send a file whose first line names the columns, or send it with header=false.",
                code="no_header",
            )
        if not self._yielded:
            yield self._cut(b"", 0)

    def drain(self) -> Iterator[CutPiece]:
        end = None if self._long_row is not None else self._rule.whole_rows(bytes(self._buffer), len(self._buffer))
        del self._buffer[end.end if end else 0 :]
        if end:
            yield from self._advance(last=True)

    def resume_point(self) -> ResumePoint | None:
        if not self._yielded:
            return None
        point = {"offset": self._offset, "row": self._row, "line": self._line, "unclosed": self._unclosed}
        point |= {"repeated_headers": self._repeats} if self._repeats else {}
        return {**point, "columns": list(self._layout.columns)} if self._layout else point

    def rows_cut(self) -> int:
        return self._row - 1

    def repeated_headers(self) -> int:
        return self._repeats

    def close(self) -> None:
        self._buffer.clear()

    def _advance(self, *, last: bool) -> Iterator[CutPiece]:
        while len(self._buffer) > self._wanted or (last and self._buffer) or self._long_row is not None:
            if not self._started:
                self._start()
            elif self._long_row is not None:
                if not self._skip_line(last):
                    return
                yield self._finish_long_row()
            elif last and self._read_head is None and self._open_lines is None:
                self._find_open_lines()
            elif self._open_lines and self._open_lines[-1][0] == self._offset:
                _, end = self._open_lines.pop()
                yield self._cut_open_line(end - self._offset, "is never closed")
            elif tally := self._next_rows(last):
                self._wanted = self._limits.piece_bytes
                yield from self._take(tally)
            elif self._wanted < self._limits.row_bytes:
                self._wanted = min(2 * self._wanted, self._limits.row_bytes)
            else:
                yield from self._break_long_row()

    def _start(self) -> None:
        self._started = True
        while self._buffer.startswith(_BOM):
            self._drop(len(_BOM))
        if self._check_start:
            self._check_start(bytes(self._buffer[: self._limits.piece_bytes]))

    def _find_open_lines(self) -> None:
        lines = self._rule.open_lines(bytes(self._buffer), MAX_UNCLOSED + 1)
        self._open_lines = [(self._offset + start, self._offset + end) for start, end in reversed(lines)]

    def _next_rows(self, last: bool) -> RowTally | None:
        size = self._open_lines[-1][0] - self._offset if self._open_lines else len(self._buffer)
        window = bytes(memoryview(self._buffer)[: min(size, self._wanted + 1)])
        limit = min(self._wanted, size)
        if self._read_head is not None and window[0] in b"\r\n":
            return self._blank_lines(window)
        if self._read_head is not None or self._wanted > self._limits.piece_bytes:
            tally = self._rule.first_row(window, limit)
        elif size > self._limits.piece_bytes:
            tally = self._rule.whole_rows(window, limit)
        else:
            return self._rule.all_rows(window)
        return self._rule.all_rows(window) if tally is None and last and size <= self._wanted else tally

    def _blank_lines(self, window: bytes) -> RowTally:
        """Takes all blank lines before the header at once: one by one, each would cost a scan of the window."""
        size = len(window) - len(window.lstrip(b"\r\n"))
        if 1 < size == len(window) and window.endswith(b"\r"):
            size -= 1
        return RowTally(size, 0, self._rule.all_rows(window[:size]).lines)

    def _take(self, tally: RowTally) -> Iterator[CutPiece]:
        body = self._drop(tally.end)
        if self._read_head is not None:
            layout = self._read_head(body, self._line) if tally.rows else None
            if layout is not None:
                self._layout, self._read_head = layout, None
            self._line += tally.lines
        elif tally.rows:
            body, repeats = (
                self._without_repeats(body, self._layout) if self._without_repeats and self._layout else (body, 0)
            )
            self._repeats += repeats
            yield from self._rows_cut(body, replace(tally, rows=tally.rows - repeats))
        else:
            self._line += tally.lines

    def _rows_cut(self, body: bytes, tally: RowTally) -> Iterator[CutPiece]:
        line = self._line
        self._line += tally.lines
        if not tally.rows:
            return
        if body.startswith(_BOM) and self._layout:
            # A CSV parser removes these octets at the start of its input. Behind a blank line they stay text.
            yield self._cut(b"\n" + body, tally.rows, line - 1)
        else:
            yield self._cut(body, tally.rows, line)

    def _cut(self, body: bytes, rows: int, line: int | None = None, oversize: Oversize | None = None) -> CutPiece:
        first_row, self._row, self._yielded = self._row, self._row + rows, True
        encoding = "oversize" if oversize else self._rule.encoding
        return CutPiece(body, encoding, first_row, line or self._line, rows, self._layout, oversize)

    def _drop(self, size: int) -> bytes:
        body = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        self._offset += size
        return body

    def _break_long_row(self) -> Iterator[CutPiece]:
        """Called when the buffer holds more than the row limit and no row end."""
        if self._read_head is not None:
            raise Invalid(
                f"The header in line {self._line} is longer than {self._limits.row_text}.",
                remedy="Check the quote and delimiter settings, or whether the file is CSV at all.",
            )
        end = self._rule.first_line(bytes(self._buffer[: self._limits.row_bytes + 1]))
        if end is None or end > self._limits.row_bytes:
            self._long_row = self._drop(self._limits.kept_bytes)
            return
        yield self._cut_open_line(end, f"does not close within {self._limits.row_text}")

    def _cut_open_line(self, size: int, what: str) -> CutPiece:
        self._unclosed += 1
        if self._unclosed > MAX_UNCLOSED:
            raise Invalid(
                f"More than {MAX_UNCLOSED} rows hold a quote that never closes, the last one in line {self._line}.",
                remedy="Check the quote setting.",
            )
        self._wanted = self._limits.piece_bytes
        message = f"The quote opened in line {self._line} {what}"
        body = self._drop(size).rstrip(b"\r\n")[: self._limits.kept_bytes]
        self._line += 1
        return self._cut(body, 1, self._line - 1, Oversize("unclosed_quote", message))

    def _skip_line(self, last: bool) -> bool:
        """Drops the rest of the long row. True when its end has been found."""
        end = self._rule.first_line(bytes(self._buffer))
        at_edge = end == len(self._buffer) and self._buffer.endswith(b"\r")
        if end is not None and (last or not at_edge):
            self._drop(end)
            return True
        self._drop(len(self._buffer) - at_edge)
        return last

    def _finish_long_row(self) -> CutPiece:
        body, self._long_row = self._long_row or b"", None
        self._wanted = self._limits.piece_bytes
        line = self._line
        self._line += 1
        message = f"Line {line} is longer than {self._limits.row_text}"
        return self._cut(body, 1, line, Oversize("row_too_long", message))
