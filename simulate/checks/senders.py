"""Rows of senders: numbered without gap or repetition; who asks where a sender stands hears of every append before."""

from millrace.model.ops.rows import Append, OpenSender, SenderOpened
from simulate.watch import Check, Turn, Violation

Name = tuple[str, str, str]


class SendersInStep(Check):
    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self._seq: dict[Name, int] = {}
        self._waiting: dict[str, dict[Name, int]] = {}
        self._came: dict[str, int] = {}

    def applied(self, turn: Turn) -> None:
        op = turn.op
        came = self._came.setdefault(op.id, len(self._came))
        if isinstance(op, Append):
            named = {(op.tenant, op.table, sender): range_ for sender, range_ in op.senders.items()}
            self._waiting.pop(op.id, None)
            if turn.is_waiting:
                self._waiting[op.id] = {name: last for name, (_, last) in named.items()}
            elif not turn.is_refused:
                self._append(named)
        elif isinstance(op, OpenSender) and not turn.is_refused and not turn.is_waiting:
            name = op.tenant, op.table, op.sender
            if any(name in waiting for op_id, waiting in self._waiting.items() if self._came[op_id] < came):
                raise Violation("senders", f"{name} was opened before an append that came earlier in the log")
            assert isinstance(turn.answer.result, SenderOpened)
            if turn.answer.result.seq != self._seq.get(name, 0):
                raise Violation("senders", f"{name} is at {self._seq.get(name, 0)}, told was {turn.answer.result}")

    def _append(self, named: dict[Name, tuple[int, int]]) -> None:
        for name, (first, last) in named.items():
            known = self._seq.get(name, 0)
            if first != known + 1:
                raise Violation("senders", f"rows {first} to {last} of {name} were taken behind row {known}")
            self._seq[name] = last

    def over(self) -> None:
        """Nobody was told that rows are there which are not."""
        for client in self.world.senders:
            name = (*client.table, client.name)
            if client.acknowledged > self._seq.get(name, 0):
                raise Violation("senders", f"{name}: row {client.acknowledged} was acknowledged and is lost")
