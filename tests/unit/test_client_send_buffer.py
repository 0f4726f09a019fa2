"""A stream's rows until they are acknowledged: numbered once, sent again from where the platform says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.client.send_buffer import FRAME_BYTES, SendBuffer, in_pieces
from millrace.model.errors import Corrupt
from millrace.model.frames import MAX_SENT_ROW_BYTES


@given(st.data())
def test_whatever_breaks_each_row_arrives_once_and_in_order(data: st.DataObject) -> None:
    """The platform records frames in order; a break loses those under way and any acknowledgements."""
    buffer, there, made = SendBuffer(), [], 0
    buffer.begin(0)
    link: list[tuple[int, bytes]] = []
    for _ in range(data.draw(st.integers(1, 60))):
        match data.draw(st.sampled_from(["add", "add", "send", "send", "record", "acknowledge", "break"])):
            case "add":
                number = data.draw(st.integers(1, 5))
                buffer.add(b"".join(b"%d\n" % (made + n) for n in range(1, number + 1)))
                made += number
            case "send":
                frame = buffer.next_frame()
                if frame is not None:
                    link.append((frame.first, frame.rows))
            case "record" if link:
                first, rows = link.pop(0)
                assert first == len(there) + 1, "the next row, as the platform demands"
                there += rows.split()
            case "acknowledge":
                buffer.acknowledge(data.draw(st.integers(buffer.acknowledged, len(there))))
            case "break":
                link.clear()
                before = buffer.acknowledged
                assert buffer.begin_again(len(there)) == len(there) - before
    link.clear()
    buffer.begin_again(len(there))
    while frame := buffer.next_frame():
        assert frame.first == len(there) + 1
        there += frame.rows.split()
    buffer.acknowledge(len(there))
    assert there == [b"%d" % number for number in range(1, made + 1)]
    assert buffer.is_empty
    assert (buffer.size, buffer.sent_size) == (0, 0)


def test_a_platform_that_lost_or_gained_rows_is_not_trusted() -> None:
    buffer = SendBuffer()
    buffer.begin(10)
    buffer.add(b"a\nb\n")
    buffer.next_frame()
    for elsewhere in (9, 13):
        with pytest.raises(Corrupt):
            buffer.begin_again(elsewhere)
    assert buffer.begin_again(11) == 1
    frame = buffer.next_frame()
    assert frame is not None
    assert (frame.first, frame.rows) == (12, b"b\n")


def test_small_pieces_travel_together_and_large_ones_are_cut_at_row_ends() -> None:
    buffer = SendBuffer()
    for number in range(1000):
        buffer.add(b"%d\n" % number)
    frame = buffer.next_frame()
    assert frame is not None
    assert (frame.first, frame.last) == (1, 1000)
    rows = b"x" * 999 + b"\n"
    pieces = in_pieces(rows * 1000)
    assert b"".join(pieces) == rows * 1000
    assert all(len(piece) <= FRAME_BYTES and piece.endswith(b"\n") for piece in pieces)
    wide = b"y" * (2 * FRAME_BYTES) + b"\n"
    assert in_pieces(rows + wide + rows) == [rows, wide, rows]
    endless = b"z" * (2 * MAX_SENT_ROW_BYTES) + b"\n"
    first, cut, last = in_pieces(rows + endless + rows)
    assert (first, last) == (rows, rows)
    assert len(cut) <= MAX_SENT_ROW_BYTES
