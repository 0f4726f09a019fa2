"""Senders: named sequences of rows. Their rows come in ops and are numbered without gap or repetition."""

from base64 import b64decode
from dataclasses import replace

from millrace.control.rules import rule
from millrace.control.rules.admitting import admit, received, reserve
from millrace.control.rules.tables import known_table
from millrace.control.rules.tenants import refuse_departed
from millrace.control.state import Send, State, Step
from millrace.model.chunk import ROWS
from millrace.model.errors import Clash
from millrace.model.frames import OUT_OF_STEP
from millrace.model.imports import APPEND
from millrace.model.ops.rows import Append, OpenSender, RowsAppended, SenderOpened


@rule(Append)
def append(state: State, op: Append, at_us: int, partition: int) -> Step:
    """The rows are in the op: the import is admitted and received in one step."""
    table = known_table(state, op)
    refuse_departed(state.tenant)
    senders = _in_step(state, op)
    version = reserve(table, at_us)
    imp = received(table, op, APPEND, version, at_us, chunks=1, rows=op.rows, size=op.plain_bytes)
    digests = {**state.row_digests, **op.digests} if op.digests else state.row_digests
    after, effects = admit(replace(state, senders=senders, row_digests=digests), op, imp, version)
    if not op.payload:
        # An old op that is read again: its rows are in the tables, and can no longer be read here.
        return after, effects, RowsAppended(imp.id, version)
    empty = Send.change(imp, 0, ROWS).header
    header = replace(empty, rows=op.rows, plain_bytes=op.plain_bytes, checksum=op.checksum, key=op.key)
    return after, (*effects, Send(header, b64decode(op.payload))), RowsAppended(imp.id, version)


def _in_step(state: State, op: Append) -> dict[str, int]:
    """By sender the number of its last row, with the rows of the op."""
    senders = dict(state.senders)
    for sender, (first, last) in op.senders.items():
        known = senders.get(sender, 0)
        if first != known + 1 or last < first:
            raise Clash(
                f"Sender {sender!r} is at row {known}; rows {first} to {last} do not follow it.",
                remedy="Open the sender again and go on behind the number it answers.",
                code=OUT_OF_STEP,
            )
        senders[sender] = last
    return senders


@rule(OpenSender)
def open_sender(state: State, op: OpenSender, at_us: int, partition: int) -> Step:
    known_table(state, op)
    refuse_departed(state.tenant)
    return state, (), SenderOpened(op.sender, state.senders.get(op.sender, 0), state.row_digests.get(op.sender))
