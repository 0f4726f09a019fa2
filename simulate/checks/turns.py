"""Exclusive tables: one thing at a time, in the order of the log. An idempotency key: one import."""

from millrace.model import ops
from simulate.watch import Check, Turn, Violation

IN_TURN = (
    ops.DEFINE_TABLE, ops.TRUNCATE_TABLE, ops.DROP_TABLE, ops.RESTORE_TABLE, ops.BEGIN_IMPORT, ops.APPEND,
    ops.REPLAY_ERRORS,
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
        if op.kind not in (*IN_TURN, ops.PURGE_TABLE, ops.OPEN_STREAM):
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
        elif exclusive and line and changes and op.kind in IN_TURN:
            raise Violation("turns", f"{op} went before all that waits: {line}")
        if exclusive and busy and changes:
            raise Violation("exclusive", f"{op} started while {busy} was under way")
        self._changed(turn, name)

    def _waits(self, turn: Turn, line: list[str], busy: set[str], exclusive: bool) -> None:
        if "as" in turn.answer.result:
            if turn.answer.result["as"] not in line:
                raise Violation("turns", f"{turn.op} waits as {turn.answer.result['as']}, which does not wait")
            return
        if not exclusive or not (busy or line):
            raise Violation("turns", f"{turn.op} waits for nothing")
        if turn.op.body.get("wait") is False:
            raise Violation("turns", f"{turn.op} did not want to wait")
        line.append(turn.op.id)

    def _changed(self, turn: Turn, name: Name) -> None:
        imp = turn.admitted
        if imp is not None:
            self._under_way[name].add(imp.id)
        if turn.op.kind == ops.DEFINE_TABLE and turn.effects and not turn.is_refused:
            self._exclusive[name] = turn.op.body["declaration"]["concurrency"] == "exclusive"

    def over(self) -> None:
        stuck = {name: line for name, line in self._line.items() if line}
        if stuck:
            raise Violation("liveness", f"these still wait for their turn: {stuck}")


class OneImportPerKey(Check):
    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self._made: dict[Name, str] = {}

    def applied(self, turn: Turn) -> None:
        key = turn.op.body.get("idempotency_key")
        if turn.op.kind != ops.BEGIN_IMPORT or key is None or turn.is_refused or turn.is_waiting:
            return
        made = turn.answer.result["import"]
        first = self._made.setdefault((turn.op.tenant, key), made)
        if first != made:
            raise Violation("idempotency", f"key {key} made {first} and {made}")
