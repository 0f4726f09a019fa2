"""Exclusive tables: one thing at a time, in the order of the log. An idempotency key: one import."""

from millrace.model.ops.base import TurnOp
from millrace.model.ops.imports import BeginImport, ImportBegun
from millrace.model.ops.rows import Append, OpenSender, ReplayErrors
from millrace.model.ops.tables import DefineTable, DropTable, PurgeTable, RestoreTable, TruncateTable
from simulate.watch import Check, Turn, Violation

IN_TURN = (
    DefineTable, TruncateTable, DropTable, RestoreTable, BeginImport, Append,
    ReplayErrors,
)  # fmt: skip
Name = tuple[str, str]


class OneAtATime(Check):
    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self._exclusive: dict[Name, bool] = {}
        self._under_way: dict[Name, set[str]] = {}
        self._line: dict[Name, list[str]] = {}

    def applied(self, turn: Turn) -> None:
        op, ended = turn.op, turn.ended
        if ended is not None:
            self._under_way.setdefault((ended.tenant, ended.table), set()).discard(ended.id)
        if not isinstance(op, (*IN_TURN, PurgeTable, OpenSender)):
            return
        name = op.tenant, op.subject
        line, busy = self._line.setdefault(name, []), self._under_way.setdefault(name, set())
        exclusive = self._exclusive.get(name, False)
        if turn.is_waiting:
            self._waits(turn, line, busy, exclusive)
            return
        changes = any(effect.type != "span.aborted" for effect in turn.told)
        if op.id in line:
            if line[0] != op.id:
                raise Violation("turns", f"{op} went before {line[0]}, which came earlier")
            line.pop(0)
        elif exclusive and line and changes and isinstance(op, IN_TURN):
            raise Violation("turns", f"{op} went before all that waits: {line}")
        if exclusive and busy and changes:
            raise Violation("exclusive", f"{op} started while {busy} was under way")
        self._changed(turn, name)

    def _waits(self, turn: Turn, line: list[str], busy: set[str], exclusive: bool) -> None:
        if turn.waits_as is not None:
            if turn.waits_as not in line:
                raise Violation("turns", f"{turn.op} waits as {turn.waits_as}, which does not wait")
            return
        if not exclusive or not (busy or line):
            raise Violation("turns", f"{turn.op} waits for nothing")
        if isinstance(turn.op, TurnOp) and not turn.op.wait:
            raise Violation("turns", f"{turn.op} did not want to wait")
        line.append(turn.op.id)

    def _changed(self, turn: Turn, name: Name) -> None:
        imp = turn.admitted
        if imp is not None:
            self._under_way[name].add(imp.id)
        if isinstance(turn.op, DefineTable) and turn.effects and not turn.is_refused:
            assert turn.op.declaration is not None
            self._exclusive[name] = turn.op.declaration["concurrency"] == "exclusive"

    def over(self) -> None:
        stuck = {name: line for name, line in self._line.items() if line}
        if stuck:
            raise Violation("liveness", f"these still wait for their turn: {stuck}")


class OneImportPerKey(Check):
    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self._made: dict[Name, str] = {}

    def applied(self, turn: Turn) -> None:
        op, result = turn.op, turn.answer.result
        if not isinstance(op, BeginImport) or not isinstance(result, ImportBegun) or op.idempotency_key is None:
            return
        key, made = op.idempotency_key, result.import_id
        first = self._made.setdefault((op.tenant, key), made)
        if first != made:
            raise Violation("idempotency", f"key {key} made {first} and {made}")
