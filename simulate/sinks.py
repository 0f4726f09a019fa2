"""A sink as the contract wants it: takes everything again and in any order, and shows the greatest version of each key."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from millrace.model.chunk import PUBLISH, ROWS, TRUNCATE
from millrace.model.table import Definition
from simulate.content import Chunk, Judgement, Row
from simulate.queries import Group

# Of two rows the one with the greater rank wins: later version, or later in the same chunk.
Rank = tuple[int, int]


class Stored(NamedTuple):
    """`row` is None where the key was deleted: a tombstone."""

    rank: Rank
    import_id: str
    row: Row | None


class TableSink:
    def __init__(self, definition_of: Callable[[str], Definition]) -> None:
        self._definition_of = definition_of
        self._unpublished: dict[str, dict[int, tuple[Chunk, Judgement, bool]]] = {}
        self._published: set[str] = set()
        self._chunks: set[tuple[str, int]] = set()
        self.stored: dict[Any, Stored] = {}
        self.floor = 0
        self.revision = 0

    def write(self, groups: Iterable[Group]) -> None:
        """One commit."""
        for group in groups:
            definition = self._definition_of(group.definition)
            # A chunk of a new generation says by its definition that the table began anew, should it be the first to come.
            self._raise(definition.floor)
            self.revision = max(self.revision, definition.revision)
            for chunk, found in group.chunks:
                self._take(chunk, found, bool(definition.table.primary_key))

    def _take(self, chunk: Chunk, found: Judgement, keyed: bool) -> None:
        if chunk.kind == TRUNCATE:
            self._raise(chunk.version)
        elif chunk.kind == PUBLISH:
            self._published.add(chunk.import_id)
            for unpublished in self._unpublished.pop(chunk.import_id, {}).values():
                self._show(*unpublished)
        elif chunk.kind == ROWS and chunk.publish == "atomic" and chunk.import_id not in self._published:
            if found.accepted:
                self._unpublished.setdefault(chunk.import_id, {})[chunk.number] = chunk, found, keyed
        elif chunk.kind == ROWS and found.accepted:
            self._show(chunk, found, keyed)

    def _show(self, chunk: Chunk, found: Judgement, keyed: bool) -> None:
        if not keyed and (chunk.import_id, chunk.number) in self._chunks:
            return
        self._chunks.add((chunk.import_id, chunk.number))
        for number, row in found.accepted:
            key = row.key if keyed else (chunk.import_id, chunk.number, number)
            self._put(key, Stored((chunk.version, number), chunk.import_id, None if row.deletes else row))

    def _put(self, key: Any, new: Stored) -> None:
        if new.rank[0] <= self.floor:
            return
        known = self.stored.get(key)
        if known is None or new.rank > known.rank:
            self.stored[key] = new

    def _raise(self, floor: int) -> None:
        if floor > self.floor:
            self.floor = floor
            self.stored = {key: one for key, one in self.stored.items() if one.rank[0] > floor}

    def purge_tombstones(self, safe_version: int) -> None:
        """Behind what can still be on its way no tombstone is needed, but nothing may come back there either."""
        gone = [key for key, one in self.stored.items() if one.row is None and one.rank[0] <= safe_version]
        if gone:
            self.floor = max(self.floor, *(self.stored[key].rank[0] for key in gone))
            for key in gone:
                del self.stored[key]

    def visible(self) -> dict[Any, Stored]:
        return {key: one for key, one in self.stored.items() if one.row is not None}


class ErrorStore:
    """Rejected rows by import and row number; each is there once, however often it comes."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[int, tuple[int, Row]]] = {}

    def keep(self, chunk: Chunk, found: Judgement) -> None:
        kept = self.rows.setdefault(chunk.import_id, {})
        rows = dict(zip(chunk.numbers, chunk.rows, strict=True))
        for number in found.rejected:
            kept[number] = chunk.number, rows[number]
