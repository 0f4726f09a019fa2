"""Which targets a table has, as its definitions tell one after the other: who gets a group of chunks, who left, who must
catch up. A target that is added to a table with rows is back-filled; one that is removed is drained."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from millrace.exchange.queues import Members, Queues
from millrace.model.queues import Backfill, Member, QueueKey, Waiver
from millrace.model.sinks import SinkTarget
from millrace.model.table import Definition

Known = Callable[[str], Definition]


class Roster:
    """The targets of one kind, of the tables of one batch."""

    def __init__(self, queues: Queues, definitions: Known, kind: str, tables: Iterable[tuple[str, str]]) -> None:
        self._queues = queues
        self._definitions = definitions
        self._kind = kind
        self.records = {record.key: record for record in queues.of_tables(kind, list(set(tables)))}
        self._members: dict[tuple[str, str], Members] = {}
        for key, record in self.records.items():
            if record.member is not None:
                of_table = self._members.get((key.tenant, key.table), {})
                self._members[key.tenant, key.table] = {**of_table, key.target: record.member}

    def takers(self, definition: Definition) -> dict[QueueKey, SinkTarget]:
        """Who gets what was imported under the definition: its own targets, and those that were added later; each where it is
        now."""
        place = definition.tenant, definition.table.name
        members = self._members[place] = self._learned(definition, self._members.get(place, {}))
        named = {target.name: target for target in targets_of(definition, self._kind)}
        present = {name: member.target for name, member in members.items() if member.is_active}
        late = {name for name, member in members.items() if member.takes_late(definition)}
        names = (*named, *sorted(late - named.keys()))
        return {QueueKey(self._kind, *place, name): present.get(name) or named[name] for name in names}

    def takes_late(self, key: QueueKey, definition: Definition) -> bool:
        member = self._members[key.tenant, key.table].get(key.target)
        return member is not None and member.takes_late(definition)

    def waiver(self, key: QueueKey) -> Waiver:
        return self.records[key].waiver if key in self.records else Waiver()

    def _learned(self, definition: Definition, members: Members) -> Members:
        newest = max((member.newest for member in members.values()), default=(0, 0))
        if definition.age <= newest or not (members or targets_of(definition, self._kind)):
            return members
        return self._queues.change_members(
            self._kind, definition.tenant, definition.table.name, lambda known: self._learn(definition, known)
        )

    def _learn(self, definition: Definition, members: Members) -> Members:
        newest = max((member.newest for member in members.values()), default=(0, 0))
        lineage = lineage_of(definition, self._definitions, newest)
        named = {target.name for ancestor in lineage for target in targets_of(ancestor, self._kind)}
        found = {name: learned(members.get(name), self._kind, name, lineage) for name in sorted(named | members.keys())}
        return {name: member for name, member in found.items() if member is not None}


def targets_of(definition: Definition, kind: str) -> list[SinkTarget]:
    return [target for target in definition.table.targets if target.kind == kind]


def learned(member: Member | None, kind: str, name: str, lineage: Sequence[Definition]) -> Member | None:
    """The member after a table's definitions, oldest first; those it knows already change nothing."""
    for definition in lineage:
        if member is None or definition.age > member.newest:
            target = next((target for target in targets_of(definition, kind) if target.name == name), None)
            member = _next(member, target, definition)
    return member


def _next(member: Member | None, target: SinkTarget | None, definition: Definition) -> Member | None:
    now, fingerprint = definition.age, definition.fingerprint
    if target is None:
        return member and replace(member, newest=now, definition=fingerprint, removed=member.removed or now)
    is_first = definition.previous is None
    if member is None or not member.is_active:
        return Member(target, fingerprint, now, now, None, None if is_first else Backfill())
    begun = replace(member, target=target, definition=fingerprint, newest=now)
    # A new generation begins empty: there is nothing to catch up with.
    return replace(begun, added=now, backfill=None) if is_first else begun


def lineage_of(definition: Definition, known: Known, after: tuple[int, int]) -> list[Definition]:
    """The definitions of this generation that are newer than an age, up to this one, oldest first."""
    found = []
    current: Definition | None = definition
    while current is not None and current.age > after:
        found.append(current)
        current = known(current.previous) if current.previous else None
    return found[::-1]
