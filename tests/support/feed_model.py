"""A keyed table and the changes of each of its versions, in plain Python: what happens to the table in, what readers of its
change feed must find out."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import deltalake
import pyarrow as pa


class FeedRow(NamedTuple):
    """One row of the feed."""

    version: int
    change: str
    key: int
    text: str | None
    row_version: int | None


COLUMNS = ["_commit_version", "_change_type", "id", "text", "_version"]
Stored = tuple[int | None, str | None]
"""The row's version, and its text."""


@dataclass
class FeedModel:
    rows: dict[int, Stored] = field(default_factory=dict)
    graves: dict[int, int] = field(default_factory=dict)
    floor: int = -1
    changes: list[FeedRow] = field(default_factory=list)
    newest: int = -1
    _before: dict[int, Stored] = field(default_factory=dict)

    def imported(self, version: int, texts: Mapping[int, str], deletes: Collection[int] = ()) -> None:
        """All rows have the same version. A row wins against older ones, a delete also against one of its version."""
        for key, text in texts.items():
            if version > max(self._known(key), self.graves.get(key, -1), self.floor):
                self.rows[key] = version, text
        for key in deletes:
            if version > self.floor and version > self.graves.get(key, -1):
                if self._known(key) <= version:
                    self.rows.pop(key, None)
                self.graves[key] = version

    def truncated(self, floor: int) -> None:
        self.floor = max(self.floor, floor)
        self.rows = {key: row for key, row in self.rows.items() if (row[0] or 0) > floor}

    def committed(self, newest: int) -> None:
        """What has changed belongs to this version; versions between the last one and this one change nothing."""
        before, after = self._before, self.rows
        found = [FeedRow(newest, "delete", key, *_turned(row)) for key, row in before.items() if key not in after]
        found += [FeedRow(newest, "insert", key, *_turned(row)) for key, row in after.items() if key not in before]
        for key in before.keys() & after.keys():
            if before[key] != after[key]:
                found.append(FeedRow(newest, "update_preimage", key, *_turned(before[key])))
                found.append(FeedRow(newest, "update_postimage", key, *_turned(after[key])))
        assert newest > self.newest or not found, "nothing was committed"
        self.changes += found
        self.newest, self._before = newest, dict(after)

    def between(self, first: int, last: int) -> list[FeedRow]:
        return in_order(change for change in self.changes if first <= change.version <= last)

    def _known(self, key: int) -> int:
        return self.rows[key][0] or 0 if key in self.rows else -1


def _turned(row: Stored) -> tuple[str | None, int | None]:
    return row[1], row[0]


def read_by_deltalake(root: Path, first: int, last: int) -> list[FeedRow]:
    reader = deltalake.DeltaTable(str(root)).load_cdf(starting_version=first, ending_version=last)
    rows = pa.table(reader.read_all()).select(COLUMNS)
    return in_order(FeedRow(*row.values()) for row in rows.to_pylist())


def in_order(rows: Iterable[FeedRow]) -> list[FeedRow]:
    return sorted(rows, key=lambda row: (row.version, row.change, row.key, str(row)))
