"""I3: the sinks have what a plain replay in version order leaves. No row of an atomic import shows before its publication."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from millrace.model.chunk import ROWS
from millrace.model.imports import COMPLETED, TRUNCATE
from simulate.content import LAKE, MIRROR, TABLES, Row, judge
from simulate.watch import Check, Seen, Violation

# Version, place in the chunk, key, row (None: everything before it is gone).
Entry = tuple[int, int, Any, Row | None]


class LastOneWins(Check):
    def over(self) -> None:
        for sink, table in product((LAKE, MIRROR), TABLES):
            expected = self._replayed(sink, table)
            found = {key: (one.rank, one.row) for key, one in self.world.sinks[sink][table].visible().items()}
            if found != expected:
                raise Violation("last one wins", f"{table} shows {found} in {sink}, a plain replay {expected}")

    def _replayed(self, sink: str, table: tuple[str, str]) -> dict[Any, Any]:
        left: dict[Any, Any] = {}
        sent_there = [seen for seen in self.book.values() if sink in self._sinks(seen)]
        entries = [entry for seen in sent_there for entry in self._entries(seen, table)]
        for version, place, key, row in sorted(entries, key=lambda entry: entry[:2]):
            if row is None:
                left.clear()
            elif row.deletes:
                left.pop(key, None)
            else:
                left[key] = (version, place), row
        return left

    def _sinks(self, seen: Seen) -> tuple[str, ...]:
        return self.world.definitions[seen.imp.definition].table.sinks

    def _entries(self, seen: Seen, table: tuple[str, str]) -> Iterator[Entry]:
        imp = seen.imp
        if (imp.tenant, imp.table) != table:
            return
        definition = self.world.definitions[imp.definition]
        # Whatever sink hears of a generation, its table began anew where the generation did.
        if definition.floor:
            yield definition.floor, 0, None, None
        if imp.kind == TRUNCATE:
            yield imp.first_version, 0, None, None
        if imp.publish == "atomic" and seen.final != COMPLETED:
            return
        for number, verdict in seen.judged.items():
            chunk = seen.chunks[number]
            if chunk.kind == ROWS and not verdict.ignored:
                for place, row in judge(chunk, definition).accepted:
                    keyed = definition.table.primary_key
                    yield chunk.version, place, row.key if keyed else (imp.id, number, place), row


class HeldUntilShown(Check):
    def sank(self, sink: str, table: tuple[str, str]) -> None:
        for key, one in self.world.sinks[sink][table].visible().items():
            seen = self.book[one.import_id]
            if seen.imp.publish == "atomic" and not seen.is_shown:
                raise Violation("atomic", f"{key} of {one.import_id} is visible, and it was not published")
