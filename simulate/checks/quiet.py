"""When nothing moves any more: everything has ended, everyone was told in order, and the log says the same again."""

from dataclasses import replace
from typing import Any

from millrace.control.step import step
from simulate.logs import EVENTS, OPS
from simulate.memory import Memory, MemoryTransaction
from simulate.watch import Check, Turn, Violation


class EverythingEnds(Check):
    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self._answered: dict[str, str | None] = {}

    def applied(self, turn: Turn) -> None:
        waits = turn.waits_as or turn.op.id if turn.is_waiting else None
        self._answered[turn.op.id] = waits

    def over(self) -> None:
        for record in self.world.logs.every(OPS):
            waits_for = self._answered.get(record.value.id, record.value.id)
            if waits_for is not None and self._answered.get(waits_for, waits_for) is not None:
                raise Violation("liveness", f"{record.value} has no outcome")
        store = self.world.store.read()
        open_imports = [imp for imp in store.imports.values() if not imp.is_over]
        if open_imports:
            raise Violation("liveness", f"these imports are not over: {open_imports}")
        left = store.outbox or store.closings or store.events[store.sent :]
        if left:
            raise Violation("liveness", f"these effects were not carried out: {left}")


class EventsInOrder(Check):
    """An event has one id and one content; told apart by id, events of a tenant stand in their topic as they occurred."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self._occurred: dict[str, list[tuple[str, str]]] = {}

    def applied(self, turn: Turn) -> None:
        occurred = self._occurred.setdefault(turn.op.tenant, [])
        occurred += [(told.type, told.subject) for told in turn.told]

    def over(self) -> None:
        contents: dict[str, Any] = {}
        told: dict[str, list[tuple[str, str]]] = {}
        for record in self.world.logs.every(EVENTS):
            event = record.value
            if event.id not in contents:
                told.setdefault(event.tenant, []).append((event.type, event.subject))
            if contents.setdefault(event.id, event) != event:
                raise Violation("events", f"{event} has the id of {contents[event.id]}")
        for tenant, occurred in self._occurred.items():
            if told.get(tenant, []) != occurred:
                raise Violation("events", f"of {tenant} came {told.get(tenant)}, but there occurred {occurred}")


class ReplayIsTheSame(Check):
    """I1: a fresh store that reads the whole log, one partition after the other, ends as this one did."""

    def over(self) -> None:
        # It takes as long as much else together; whatever chooses a third of all lives will do.
        if self.world.logs.length[OPS] % 3:
            return
        fresh = Memory()
        transaction = MemoryTransaction(fresh, self.world.contents)
        for record in self.world.logs.every(OPS):
            before = transaction.load(record.value)
            outcome = step(before, record.value, record.at_us, record.partition)
            transaction.save(before, outcome.state, record.at_us)
        lived, replayed = _comparable(self.world.store.read()), _comparable(fresh)
        for name, value in replayed.items():
            if lived[name] != value:
                raise Violation("same log, same state", f"{name}: lived {lived[name]}, replayed {value}")


def _comparable(store: Memory) -> dict[str, Any]:
    """Where markers stood is not for the log to say."""
    imports = {name: replace(imp, markers=None) for name, imp in store.imports.items()}
    names = ("tenants", "tables", "revisions", "spans", "senders", "claims", "keys")
    return {"imports": imports, **{name: getattr(store, name) for name in names}}
