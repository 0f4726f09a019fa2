"""Where the rows of a JSON Lines text are: bytes in, positions out. Lines of white space only are no rows."""

import numpy as np

from millrace.formats.bits import Positions
from millrace.formats.csv_rows import CR, LF, Octets, RowSpans

SPACE = 32
_IS_INK = np.ones(256, np.bool_)
_IS_INK[list(b" \t\r\n")] = False


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
