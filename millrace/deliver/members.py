"""The targets of every table that has some of a kind, as its definitions tell: who is to get a group of chunks, and who must
catch up. Kept beside the queues, so that a restart knows as much."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from millrace.deliver.roster import MEMBER_FILE, Member, learned, lineage_of, read_member, targets_of, write_member
from millrace.exchange.places import Places
from millrace.lake.batch import age
from millrace.model.sinks import SinkTarget
from millrace.model.table import Definition

Place = tuple[str, str, str]


@dataclass
class _Known:
    newest: tuple[int, int] = (0, 0)
    members: dict[str, Member] = field(default_factory=dict)


class Members:
    """Safe to share between threads."""

    def __init__(self, places: Places, definitions: Callable[[str], Definition]) -> None:
        self._places = places
        self._definitions = definitions
        self._tables: dict[Place, _Known] = {}
        self._lock = threading.RLock()

    def takers(self, kind: str, definition: Definition) -> dict[str, SinkTarget]:
        """Who gets what was imported under the definition: its own targets, and those that came to the table later; each
        where it is now."""
        with self._lock:
            members = self._learn(kind, definition).members
            named = {target.name: target for target in targets_of(definition, kind)}
            present = {name: member.target for name, member in members.items() if member.is_active}
            late = {name for name, member in members.items() if member.takes_late(definition)}
        return {name: present.get(name) or named[name] for name in (*named, *(late - named.keys()))}

    def at(self, folder: Path) -> Member | None:
        """The member whose queue it is."""
        with self._lock:
            return self._table(_place(folder)).members.get(folder.name)

    def catching_up(self) -> list[Path]:
        """The queues of members that a restart finds in the middle of a back-fill, or before it."""
        found = []
        for path in sorted(self._places.parked.glob("*/*/*/*")):
            member = self.at(path)
            if member is not None and member.backfill is not None and member.backfill.ended is None:
                found.append(path)
        return found

    def change(self, folder: Path, change: Callable[[Member], Member]) -> None:
        with self._lock:
            members = self._table(_place(folder)).members
            if folder.name in members:
                members[folder.name] = change(members[folder.name])
                write_member(folder, members[folder.name])

    def _learn(self, kind: str, definition: Definition) -> _Known:
        place = kind, definition.tenant, definition.table.name
        known = self._table(place)
        if age(definition) <= known.newest:
            return known
        if known.members or targets_of(definition, kind):
            lineage = lineage_of(definition, self._definitions, known.newest)
            named = {target.name for one in lineage for target in targets_of(one, kind)}
            for name in sorted(named | known.members.keys()):
                member = learned(known.members.get(name), kind, name, lineage)
                if member is not None:
                    known.members[name] = member
                    folder = self._places.queue(*place, name)
                    # What was drained and forgotten stays so.
                    if member.is_active or folder.is_dir():
                        write_member(folder, member)
        known.newest = age(definition)
        return known

    def _table(self, place: Place) -> _Known:
        folder = self._places.parked.joinpath(*place)
        if place not in self._tables or _is_erased(folder, self._tables[place]):
            found = {path.name: read_member(path) for path in folder.glob("*")}
            members = {name: member for name, member in found.items() if member is not None}
            newest = max((member.newest for member in members.values()), default=(0, 0))
            self._tables[place] = _Known(newest, members)
        return self._tables[place]


def _is_erased(folder: Path, known: _Known) -> bool:
    """Only with its tenant does an active member's file go: what is remembered is of a table that is gone."""
    active = [name for name, member in known.members.items() if member.is_active]
    return not all((folder / name / MEMBER_FILE).exists() for name in active)


def _place(folder: Path) -> Place:
    kind, tenant, table, _ = folder.parts[-4:]
    return kind, tenant, table
