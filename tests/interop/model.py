"""What must be in a table, kept by plain dictionaries: written from the promises, not from the platform's code."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.interop.cells import row_texts
from tests.interop.shapes import Row

Where = Callable[[Row], bool]
# Rows of another writer have no version: every import replaces them.
NO_VERSION = -1


@dataclass
class Model:
    """The live rows with the versions that they came with. Without a key each row has a number instead."""

    key: str | None
    columns: tuple[str, ...]
    rows: dict[object, tuple[int, Row]] = field(default_factory=dict)
    deleted: dict[object, int] = field(default_factory=dict)
    count: int = 0

    def copy(self) -> "Model":
        return Model(self.key, self.columns, dict(self.rows), dict(self.deleted), self.count)

    def imported(self, version: int, rows: Sequence[Row], deletes: Sequence[object] = ()) -> None:
        """A row wins against stored rows and deletes of smaller versions."""
        for row in rows:
            place = self._place(row)
            stored = self.rows.get(place, (NO_VERSION, row))[0]
            if version > stored and version > self.deleted.get(place, NO_VERSION):
                self.rows[place] = version, row
        for place in deletes:
            self.deleted[place] = max(version, self.deleted.get(place, NO_VERSION))
            if place in self.rows and self.rows[place][0] <= version:
                del self.rows[place]

    def appended(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.rows[self._place(row)] = NO_VERSION, row

    def updated(self, where: Where, column: str, cell: object) -> None:
        self.rows = {
            place: (version, {**row, column: cell} if where(row) else row)
            for place, (version, row) in self.rows.items()
        }

    def removed(self, where: Where) -> None:
        self.rows = {place: stored for place, stored in self.rows.items() if not where(stored[1])}

    def merged(self, rows: Sequence[Row], column: str) -> None:
        """Known keys get one cell of the new row; other rows are added."""
        for row in rows:
            place = self._place(row)
            if place in self.rows:
                version, stored = self.rows[place]
                self.rows[place] = version, {**stored, column: row[column]}
            else:
                self.rows[place] = NO_VERSION, row

    def texts(self) -> list[str]:
        return row_texts([row[name] for name in self.columns] for _, row in self.rows.values())

    def _place(self, row: Row) -> object:
        self.count += 1
        return self.count if self.key is None else row[self.key]
