"""The command stream: JSON Lines from standard input into a table as they come; rejected rows on standard error."""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from millrace.cli.arguments import FailOnRejects, Target, split_target
from millrace.cli.printing import counted, print_json, printable
from millrace.cli.session import EXIT_FAILED, EXIT_INTERRUPTED, CommandSession
from millrace.client.send_buffer import without_first
from millrace.client.sender_summary import Rejected, Summary
from millrace.model.frames import MAX_FRAME_BYTES, count_rows, whole_rows

if TYPE_CHECKING:
    from millrace.client.sender import Sender

BLOCK_BYTES = 256 << 10
SHOWN_CHARACTERS = 200


app = typer.Typer()


@app.command("stream")
def stream(
    session: CommandSession,
    target: Target,
    span: Annotated[str | None, typer.Option(help="The open span that the rows join.")] = None,
    sender: Annotated[
        str | None,
        typer.Option(help="The sender's name: begun again with the same input, rows that are in are passed over."),
    ] = None,
    former_name: Annotated[str | None, typer.Option("--stream", hidden=True)] = None,
    fail_on_rejects: FailOnRejects = False,
) -> None:
    """Stream JSON Lines from standard input, as they come.

    Rejected rows go to standard error; at the end every row sent is durable or rejected."""
    tenant, table = split_target(target)
    name = former_name if sender is None else sender
    show = _show_as_json if session.json else _show
    sending = session.platform.rows.sender(tenant, table, name=name, span=span, on_rejected=show)
    try:
        with sending:
            _send(sending, blocks_of_rows(_blocks(sys.stdin.buffer)))
    except KeyboardInterrupt:
        goes_on = f"Rows up to {sending.seq:,} are in; the same input with --sender {sending.name} goes on."
        print(f"Interrupted. {goes_on}", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _report(session, target, sending.summary)
    raise typer.Exit(_exit_code(sending.summary, fail_on_rejects))


def _send(sender: "Sender", blocks: Iterable[bytes]) -> None:
    """The input begins with the sender's first row; rows that the platform already has are passed over."""
    known = passed = sender.seq
    if known:
        known_rows = f"{counted(known, 'row')} {'is' if known == 1 else 'are'}"
        print(f"Sender {sender.name}: {known_rows} in already, and passed over.", file=sys.stderr)
    for rows in blocks:
        number = count_rows(rows) if passed else 0
        if passed and number <= passed:
            passed -= number
            continue
        sender.send(without_first(rows, passed))
        passed = 0


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    """As they come: rows of a slow input do not wait until a block is full."""
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


def _report(session: CommandSession, target: str, summary: Summary) -> None:
    if session.json:
        counts = asdict(summary)
        print_json({"stream": counts.pop("sender"), **counts})
    else:
        print(
            f"{summary.sender} {target}: {counted(summary.rows, 'row')} sent, {summary.accepted:,} accepted, "
            f"{summary.rejected:,} rejected, {summary.ignored:,} ignored; {summary.appends:,} appends; "
            f"last version {summary.version if summary.version is not None else '-'}"
        )
        if summary.unheard:
            print(
                f"In, but without a known verdict because the connection broke: {counted(summary.unheard, 'row')}.",
                file=sys.stderr,
            )
    for failure in summary.failures:
        print(f"{failure['message']} {failure['remedy']}".rstrip(), file=sys.stderr)


def _exit_code(summary: Summary, fail_on_rejects: bool) -> int:
    nothing_accepted = summary.rows > summary.unheard and not summary.accepted
    bad = summary.failures or summary.ignored or nothing_accepted or (fail_on_rejects and summary.rejected)
    return EXIT_FAILED if bad else 0
