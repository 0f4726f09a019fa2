"""Which targets a table has, as its definitions tell one after the other: who came, who went, who must catch up.

A target that comes to a table with a past is to be back-filled; one that goes is drained. Values, and the file that keeps
them beside the target's queue."""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from millrace.lake.batch import age
from millrace.model.sinks import SinkTarget
from millrace.model.table import Definition

MEMBER_FILE = "member.json"
WANTED, UNDER_WAY, DONE, GIVEN_UP, IMPOSSIBLE = "wanted", "under way", "done", "given up", "impossible"
FROM_LOG, FROM_DELTA = "log", "delta"


@dataclass(frozen=True, slots=True)
class Backfill:
    """How a target that came late gets what was there before. `source` is where that is taken from; `needs` are imports that
    the source must show first."""

    state: str = WANTED
    source: str | None = None
    rows: int = 0
    needs: tuple[str, ...] = ()
    reason: str = ""
    began: float | None = None
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A target of a table. `added` and `removed` are ages of definitions; `definition` is the newest that was looked at."""

    target: SinkTarget
    definition: str
    newest: tuple[int, int]
    added: tuple[int, int]
    removed: tuple[int, int] | None = None
    backfill: Backfill | None = None

    @property
    def is_active(self) -> bool:
        return self.removed is None

    def takes_late(self, definition: Definition) -> bool:
        """Whether it gets what was imported under a definition from before it came: the table is the same one."""
        return self.is_active and age(definition) < self.added and definition.generation == self.added[0]

    def wanting(self, *needs: str) -> "Member":
        before = self.backfill or Backfill()
        return replace(self, backfill=Backfill(needs=(*before.needs, *needs)))


def learned(member: Member | None, kind: str, name: str, lineage: Sequence[Definition]) -> Member | None:
    """The member after a table's definitions, oldest first; those looked at before change nothing."""
    for definition in lineage:
        if member is None or age(definition) > member.newest:
            target = next((one for one in targets_of(definition, kind) if one.name == name), None)
            member = _next(member, target, definition)
    return member


def targets_of(definition: Definition, kind: str) -> list[SinkTarget]:
    return [target for target in definition.table.targets if target.kind == kind]


def _next(member: Member | None, target: SinkTarget | None, definition: Definition) -> Member | None:
    now = age(definition)
    if target is None:
        if member is None:
            return None
        return replace(member, newest=now, definition=definition.fingerprint, removed=member.removed or now)
    is_first = definition.previous is None
    if member is None or not member.is_active:
        backfill = None if is_first else Backfill()
        return Member(target, definition.fingerprint, now, now, None, backfill)
    begun = replace(member, target=target, definition=definition.fingerprint, newest=now)
    # A new generation begins empty: there is nothing to catch up with.
    return replace(begun, added=now, backfill=None) if is_first else begun


def lineage_of(definition: Definition, known: Callable[[str], Definition], after: tuple[int, int]) -> list[Definition]:
    """The definitions of this generation from behind an age up to this one, oldest first."""
    found = []
    current: Definition | None = definition
    while current is not None and age(current) > after:
        found.append(current)
        current = known(current.previous) if current.previous else None
    return found[::-1]


def read_member(folder: Path) -> Member | None:
    try:
        data: dict[str, Any] = orjson.loads((folder / MEMBER_FILE).read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return None
    backfill = data["backfill"]
    if backfill is not None:
        backfill = Backfill(**{**backfill, "needs": tuple(backfill["needs"])})
    ages = {name: None if data[name] is None else tuple(data[name]) for name in ("newest", "added", "removed")}
    return Member(**{**data, **ages, "target": SinkTarget(**data["target"]), "backfill": backfill})


def write_member(folder: Path, member: Member) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{MEMBER_FILE}.{os.getpid()}"
    partial.write_bytes(orjson.dumps(asdict(member)))
    partial.replace(folder / MEMBER_FILE)
