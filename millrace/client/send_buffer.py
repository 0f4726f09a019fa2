"""Rows of a sender that are not acknowledged yet: rows in, numbered frames out, again from where the platform says.

Plain bookkeeping without threads or sockets."""

from collections import deque
from dataclasses import dataclass

from millrace.model.errors import Corrupt
from millrace.model.frames import count_rows, cut_long_row

FRAME_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Numbered:
    """Rows first to last of the sender."""

    first: int
    last: int
    rows: bytes

    def behind(self, seq: int) -> "Numbered":
        """Without the rows up to `seq`."""
        if seq < self.first:
            return self
        return Numbered(seq + 1, self.last, without_first(self.rows, seq + 1 - self.first))


class SendBuffer:
    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._unsent: deque[Numbered] = deque()
        self._sent: deque[Numbered] = deque()
        self._next = 1
        self.acknowledged = 0
        self.size = 0
        self.sent_size = 0

    @property
    def is_empty(self) -> bool:
        return not (self._waiting or self._unsent or self._sent)

    @property
    def has_unsent(self) -> bool:
        return bool(self._waiting or self._unsent)

    def add(self, rows: bytes) -> None:
        """Whole rows, each with its line end."""
        for piece in in_pieces(rows):
            self._waiting.append(piece)
            self.size += len(piece)

    def begin(self, seq: int) -> None:
        """The platform has rows up to `seq` from before; new rows follow."""
        self._next, self.acknowledged = seq + 1, seq

    def begin_again(self, seq: int) -> int:
        """The platform has rows up to `seq`; those behind it are sent again. Returns how many of them were unacknowledged."""
        if not self.acknowledged <= seq < self._next:
            raise Corrupt(
                f"The platform has rows up to {seq} of this sender; expected {self.acknowledged} to {self._next - 1}.",
                remedy="Is another program using the same sender?",
                code="stream_lost",
            )
        unheard = seq - self.acknowledged
        self.acknowledge(seq)
        self._unsent.extendleft(reversed(self._sent))
        self._sent.clear()
        self.sent_size = 0
        return unheard

    def next_frame(self) -> Numbered | None:
        """The frame to send next: small pieces together, up to FRAME_BYTES."""
        if not self._unsent:
            if not self._waiting:
                return None
            self._number()
        frame = self._unsent.popleft()
        self._sent.append(frame)
        self.sent_size += len(frame.rows)
        return frame

    def _number(self) -> None:
        taken = [self._waiting.popleft()]
        size = len(taken[0])
        while self._waiting and size + len(self._waiting[0]) <= FRAME_BYTES:
            taken.append(self._waiting.popleft())
            size += len(taken[-1])
        rows = taken[0] if len(taken) == 1 else b"".join(taken)
        first, self._next = self._next, self._next + count_rows(rows)
        self._unsent.append(Numbered(first, self._next - 1, rows))

    def acknowledge(self, seq: int) -> None:
        self.acknowledged = max(self.acknowledged, seq)
        while self._sent and self._sent[0].first <= seq:
            frame = self._sent.popleft()
            left = frame.behind(seq) if frame.last > seq else None
            gone = len(frame.rows) - (len(left.rows) if left else 0)
            self.size -= gone
            self.sent_size -= gone
            if left:
                self._sent.appendleft(left)


def in_pieces(rows: bytes) -> list[bytes]:
    """Pieces of whole rows, of at most FRAME_BYTES. A longer row is a piece of its own, cut if no frame could carry it."""
    if len(rows) <= FRAME_BYTES:
        return [rows] if rows else []
    pieces, start = [], 0
    while start < len(rows):
        end = rows.rfind(b"\n", start, start + FRAME_BYTES) + 1 or rows.find(b"\n", start) + 1
        pieces.append(cut_long_row(rows[start:end]))
        start = end
    return pieces


def without_first(rows: bytes, number: int) -> bytes:
    return rows.split(b"\n", number)[number] if number else rows
