"""Rows of a sender as they travel: JSON Lines in frames, each row numbered. Bytes in, bytes out; no row is ever parsed.

A frame is a line with the number of its first row in decimal, then the rows. A blank line is no row and has no number."""

import json
import re
from collections.abc import Iterator

from millrace.model.errors import Invalid, TooLarge

MAX_FRAME_BYTES = 1 << 20
# A sender may have so many bytes unacknowledged; then the platform stops reading.
WINDOW_BYTES = 4 << 20
OUT_OF_STEP = "out_of_step"

_HEAD_BYTES = 20
MAX_SENT_ROW_BYTES = MAX_FRAME_BYTES - _HEAD_BYTES
_CUT_MARK = "…".encode()
_SENDER = re.compile(r"[!-~]{1,200}", re.ASCII)
_BLANK_LINES = re.compile(rb"\n[ \t\r\n]*\n")
_MAY_BE_BLANK = re.compile(rb"\n[ \t\r\n]")
_SPACES = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_SEPARATOR = re.compile(r"[ \t\r\n]*([,\]]?)[ \t\r\n]*")


def checked_sender(value: str) -> str:
    """The name of a sender, or an idempotency key, which names a sender of one request."""
    if _SENDER.fullmatch(value):
        return value
    raise Invalid(
        f"{value[:40]!r} cannot name a sender.",
        remedy="Use 1 to 200 ASCII letters, digits and signs, without spaces.",
        code="bad_name",
    )


def whole_rows(body: bytes) -> bytes:
    """The same rows, each ended by one line feed, without blank lines, as `count_rows` expects them."""
    if body and not body.endswith(b"\n"):
        body += b"\n"
    if body[:1] in _SPACES or _MAY_BE_BLANK.search(body):
        return _BLANK_LINES.sub(b"\n", b"\n" + body)[1:]
    return body


def count_rows(rows: bytes) -> int:
    return rows.count(b"\n")


def pack_frame(first: int, rows: bytes) -> bytes:
    return b"%d\n%b" % (first, rows)


def unpack_frame(frame: bytes) -> tuple[int, bytes]:
    """The number of the first row, and the rows."""
    if len(frame) > MAX_FRAME_BYTES:
        raise TooLarge(
            f"A frame has {len(frame):,} bytes.", remedy=f"Send at most {MAX_FRAME_BYTES:,} bytes in one frame."
        )
    head, _, rows = frame.partition(b"\n")
    if not (len(head) < _HEAD_BYTES and head.isdigit()):
        raise Invalid(
            f"A frame begins with {head[:40]!r}.",
            remedy="Begin each frame with a line that holds the number of its first row.",
            code="bad_frame",
        )
    return int(head), whole_rows(rows)


def cut_long_row(row: bytes) -> bytes:
    """Of a row that is too long for a frame, its beginning. That is not JSON, so it is rejected like any bad row."""
    if len(row) <= MAX_SENT_ROW_BYTES:
        return row
    return row[: MAX_SENT_ROW_BYTES - len(_CUT_MARK) - 1] + _CUT_MARK + b"\n"


def rows_of_body(body: bytes) -> bytes:
    """The rows of a request: JSON Lines, or the elements of a JSON array, unchanged."""
    body = body.removeprefix(_BOM)
    if body.lstrip(_SPACES)[:1] != b"[":
        return whole_rows(body)
    try:
        return whole_rows("\n".join(_elements(body.decode().strip(_SPACES.decode()))).encode())
    except (ValueError, RecursionError) as error:
        raise Invalid(
            f"The body is no JSON array: {error}.", remedy="Send JSON Lines, or one array of objects."
        ) from error


def _elements(text: str) -> Iterator[str]:
    # Numbers are only skipped: a long one must not become a Python integer.
    scan = json.JSONDecoder(parse_int=str, parse_float=str).raw_decode
    at = len(text) - len(text[1:].lstrip())
    if text[at:] == "]":
        return
    while True:
        _, end = scan(text, at)
        # A JSON string contains no line ends, so these are white space between tokens.
        yield text[at:end].replace("\n", " ").replace("\r", " ")
        found = _SEPARATOR.match(text, end)
        separator, at = (found[1], found.end()) if found else ("", end)
        if separator != ",":
            break
    if separator != "]" or at != len(text):
        raise ValueError(f"something other than , or ] at character {end + 1}")
