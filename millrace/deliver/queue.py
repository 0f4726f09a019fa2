"""The deliveries that wait for one target of one table, durable until the target has them.

Each is a row of the control store and pins of its files. An item is named by its version and its chunks: parking it again
changes nothing. Items leave in the order of their versions."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from millrace.exchange.places import Places
from millrace.exchange.queues import Name, ParkedRow, Queues
from millrace.model.chunk import PUBLISH, ROWS
from millrace.model.names import chunk_id
from millrace.model.queues import QueueKey, QueueState
from millrace.model.sinks import ERROR_STORE
from millrace.sink.contract import StagedGroup


@dataclass(frozen=True, slots=True)
class Item:
    """One group on its way. An item of a back-fill may be a file of the Delta table: the positions in the file `dead` are not
    among its rows, and what that table had removed up to `floor` stays away."""

    name: Name
    group: StagedGroup
    version: int
    is_backfill: bool = False
    dead: str | None = None
    floor: int = 0

    @property
    def awaits_publish(self) -> bool:
        """Rows of an atomic import: delivered together with the group that publishes it."""
        return self.group.kind == ROWS and self.group.publish == "atomic"

    @property
    def rows(self) -> int:
        return 0 if self.group.file is None else self.group.file.rows + self.group.file.deleted_rows

    @property
    def parts(self) -> list[str]:
        file = self.group.file
        return [part for part in (file and file.path, file and file.deleted_keys, self.dead) if part]


def item_of(group: StagedGroup, is_backfill: bool = False) -> Item:
    version, _ = group.versions
    return Item((version, _digest(group)), group, version, is_backfill)


class Queue:
    """One process delivers from a queue; `state` is written by that process alone."""

    def __init__(self, places: Places, queues: Queues, key: QueueKey, state: QueueState | None = None) -> None:
        self.key = key
        self.state = state or QueueState()
        self.places = places
        self.pins = places.pins(key)
        self._queues = queues
        self._known: dict[Name, Item] = {}

    def row_of(self, group: StagedGroup, table: Path | None, *, is_backfill: bool = False) -> ParkedRow:
        """Pins the group's files, which are below `table`. The row is for `Queues.park`, alone or with others.

        None: they are not pinned now. While they are nowhere, the delivery fails and says so, until someone waives it."""
        return self._row(item_of(group, is_backfill), table)

    def row_of_copy(self, name: str, group: StagedGroup, table: Path, dead: bytes | None, floor: int) -> ParkedRow:
        """A file of the table as it stands, for a target that was added after its rows came. It goes before all else, and is
        as old as this moment: who later gives up what waits gives this up as well."""
        listed = None if dead is None else f"{name}.dead"
        if listed is not None and dead is not None:
            self.pins.write(listed, dead)
        return self._row(Item((0, name), group, time.time_ns() // 1000, True, listed, floor), table)

    def _parts(self, item: Item) -> Sequence[str]:
        """A sink of the platform itself takes the files as they are; the others read the rows of some."""
        return item.group.file.parts if self.key.is_own and item.group.file else item.parts

    def restore(self, item: Item, folder: Path) -> None:
        """Brings back files that are gone from the folder where they were staged. What has no pin stays lost."""
        for part in self._parts(item):
            self.pins.restore(part, folder / part)

    def _row(self, item: Item, table: Path | None) -> ParkedRow:
        size = item.group.file.size if item.group.file else 0
        if table is not None:
            size = sum(self.pins.pin(table / part, part) for part in self._staged_parts(item))
        return ParkedRow(self.key, *item.name, item.version, size, _to_json(item))

    def _staged_parts(self, item: Item) -> list[str]:
        return [part for part in self._parts(item) if part != item.dead]

    def pin(self, item: Item, folder: Path) -> bool:
        """Pins those of its files that have no pin. False if all had one."""
        missing = [part for part in self._staged_parts(item) if not self.pins.path(part).exists()]
        for part in missing:
            self.pins.pin(folder / part, part)
        return bool(missing)

    def release_delivered(self, items: Sequence[Item]) -> None:
        """Releases the pins of those items that were taken away while they were pinned."""
        if not items:
            return
        with self._queues.pinning_of(self.key):
            names = self._queues.names(self.key)
            if gone := [item for item in items if item.name not in names]:
                self._release(gone)

    def _release(self, gone: Sequence[Item]) -> None:
        """The pins that no other item needs."""
        if parts := {part for item in gone for part in self._parts(item)}:
            kept = {part for item in self.waiting() for part in self._parts(item)}
            self.pins.release(parts - kept if kept else None)

    def waiting(self) -> list[Item]:
        """Every item, deliverable or not, oldest version first. Items never change, so each is read once."""
        names, rows = self._queues.waiting(self.key, self._known)
        self._known |= {(row.place, row.digest): _from_row(row) for row in rows}
        self._known = {name: self._known[name] for name in names if name in self._known}
        return list(self._known.values())

    def items(self) -> list[Item]:
        """What may be delivered now, oldest version first."""
        return deliverable(self.waiting())

    def done(self, items: Sequence[Item], state: QueueState | None = None) -> None:
        """Takes the items away and keeps the new state."""
        if not items and state is None:
            return
        with self._queues.pinning_of(self.key):
            self._queues.finish(self.key, [item.name for item in items], state)
            self.state = state or self.state
            self._release(items)


def deliverable(waiting: Sequence[Item]) -> list[Item]:
    """Rows of an atomic import only once the group that publishes it is there as well."""
    published = {item.group.import_id for item in waiting if item.group.kind == PUBLISH}
    return [item for item in waiting if not item.awaits_publish or item.group.import_id in published]


def where_staged(places: Places, group: StagedGroup, sink: str = "") -> Path:
    """The folder in which the group's files were staged; for the error store, those of its rejected rows."""
    file = group.file
    # Sealed rejected rows are stored as they are.
    is_elsewhere = file is not None and (file.is_aside or (file.sealed_by is not None and sink != ERROR_STORE))
    there = places.errors if sink == ERROR_STORE else places.table
    return (places.staged if is_elsewhere else there)(group.tenant, group.table)


def _digest(group: StagedGroup) -> str:
    named = [group.kind, *(chunk_id(*chunk) for chunk in group.chunks)]
    # Rows that a sink refused belong to a chunk that was counted with other rows: only their file names them.
    if not group.chunks and group.file is not None:
        named.append(group.file.path)
    return hashlib.blake2b("\n".join(named).encode(), digest_size=12).hexdigest()


def _to_json(item: Item) -> str:
    content = {"is_backfill": item.is_backfill, "dead": item.dead, "floor": item.floor}
    return orjson.dumps({"group": item.group, **content}).decode()


def _from_row(row: ParkedRow) -> Item:
    data: dict[str, Any] = orjson.loads(row.item)
    return Item((row.place, row.digest), StagedGroup.from_dict(data.pop("group")), row.version, **data)
