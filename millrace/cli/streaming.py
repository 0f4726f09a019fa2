"""The `stream` command: JSON Lines from standard input into a table as they come; rejected rows on standard error."""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import BinaryIO

from millrace.cli.importing import split_target
from millrace.cli.printing import print_json, printable
from millrace.cli.session import EXIT_FAILED, EXIT_INTERRUPTED, Session
from millrace.client import Millrace
from millrace.client.backlog import without_first
from millrace.client.sender import Sender
from millrace.client.sender_summary import Rejected, Summary
from millrace.model.streamed import MAX_FRAME_BYTES, count_rows, whole_rows

BLOCK_BYTES = 256 << 10
SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Order:
    """What the user asked for."""

    target: str
    span: str | None = None
    stream: str | None = None
    fail_on_rejects: bool = False


def run(session: Session, order: Order) -> int:
    tenant, table = split_target(order.target)
    with Millrace.from_home(session.home) as platform:
        show = _show_as_json if session.json else _show
        stream = platform.rows.sender(tenant, table, name=order.stream, span=order.span, on_rejected=show)
        try:
            with stream:
                _send(stream, blocks_of_rows(_blocks(sys.stdin.buffer)))
        except KeyboardInterrupt:
            print(
                f"Interrupted. Rows up to {stream.seq:,} are in; the same input with --stream {stream.name} goes on.",
                file=sys.stderr,
            )
            return EXIT_INTERRUPTED
        return _report(session, order, stream.summary)


def _send(stream: Sender, blocks: Iterable[bytes]) -> None:
    """What the platform already has of the stream is passed over: the input is the stream from its first row on."""
    known = passed = stream.seq
    if known:
        print(f"Stream {stream.name}: {known:,} rows are in already and are passed over.", file=sys.stderr)
    for rows in blocks:
        number = count_rows(rows) if passed else 0
        if passed and number <= passed:
            passed -= number
            continue
        stream.send(without_first(rows, passed))
        passed = 0


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    """As they come: a slow input is not held back until a block is full."""
    read = getattr(stream, "read1", stream.read)
    while block := read(BLOCK_BYTES):
        yield block


def blocks_of_rows(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Whole rows. Of a line longer than a frame only the beginning is kept; it will be rejected."""
    held: list[bytes] = []
    size = 0
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if end:
            yield whole_rows(b"".join([*held, block[:end]]))
            held, size = [], 0
        if size <= MAX_FRAME_BYTES:
            held.append(block[end:])
            size += len(block) - end
    if size:
        yield whole_rows(b"".join(held))


def _show(rows: list[Rejected]) -> None:
    for row in rows:
        reasons = "; ".join(f"{reason['column'] or 'row'}: {reason['message']}" for reason in row["reasons"])
        print(
            f"row {row['seq']:,} rejected: {printable(reasons)} | {printable(row['raw'][:SHOWN_CHARACTERS])}",
            file=sys.stderr,
        )


def _show_as_json(rows: list[Rejected]) -> None:
    for row in rows:
        print(json.dumps(row, ensure_ascii=False), file=sys.stderr)


def _report(session: Session, order: Order, summary: Summary) -> int:
    if session.json:
        print_json(
            {"stream": summary.sender, **{name: value for name, value in asdict(summary).items() if name != "sender"}}
        )
    else:
        print(
            f"{summary.sender} {order.target}: {summary.rows:,} rows sent, {summary.accepted:,} accepted, "
            f"{summary.rejected:,} rejected, {summary.ignored:,} ignored; {summary.appends:,} appends; "
            f"last version {summary.version if summary.version is not None else '-'}"
        )
        if summary.unheard:
            print(
                f"{summary.unheard:,} rows are in, but the connection broke before it could tell their verdicts.",
                file=sys.stderr,
            )
    for failure in summary.failures:
        print(f"{failure['message']} {failure['remedy']}".rstrip(), file=sys.stderr)
    nothing_accepted = summary.rows > summary.unheard and not summary.accepted
    bad = summary.failures or summary.ignored or nothing_accepted or (order.fail_on_rejects and summary.rejected)
    return EXIT_FAILED if bad else 0
