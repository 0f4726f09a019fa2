"""The chunks that a table contains, by their ids. Columns instead of objects: a table without a key remembers each chunk of
the last days, which may be millions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millrace.lake.actions import TRANSACTION_WEIGHT, Transaction
from millrace.lake.overlay import Overlay

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class TransactionColumns(Mapping[str, Transaction]):
    """Each id once. `hashes` are sorted, `places` are the rows that they belong to. They are of this process alone."""

    app_ids: Any
    versions: Longs
    updated: Longs
    hashes: Longs
    places: Longs

    @classmethod
    def of(cls, app_ids: Any, versions: Longs, updated: Longs) -> "TransactionColumns":
        """`app_ids` is an Arrow array of large strings."""
        hashes = np.fromiter(map(hash, app_ids.to_pylist()), np.int64, len(app_ids))
        places = np.argsort(hashes, kind="stable")
        return cls(app_ids, versions, updated, hashes[places], places)

    def __getitem__(self, app_id: str) -> Transaction:
        row = self._row(app_id)
        if row is None:
            raise KeyError(app_id)
        return Transaction(app_id, int(self.versions[row]), int(self.updated[row]))

    def __contains__(self, app_id: object) -> bool:
        return isinstance(app_id, str) and self._row(app_id) is not None

    def __len__(self) -> int:
        return len(self.hashes)

    def __iter__(self) -> Iterator[str]:
        return iter(self.app_ids.to_pylist())

    @property
    def weight(self) -> int:
        """What it takes in memory, about."""
        return TRANSACTION_WEIGHT * len(self) + (pc.sum(pc.utf8_length(self.app_ids)).as_py() or 0)

    def values(self) -> ValuesView[Transaction]:
        return _Values(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process has other hashes.
        return TransactionColumns.of, (self.app_ids, self.versions, self.updated)

    def where(self, wanted: npt.NDArray[np.bool_]) -> "TransactionColumns":
        if wanted.all():
            return self
        number, kept = np.cumsum(wanted) - 1, wanted[self.places]
        return TransactionColumns(
            self.app_ids.filter(pa.array(wanted)),
            self.versions[wanted],
            self.updated[wanted],
            self.hashes[kept],
            number[self.places[kept]],
        )

    def with_new(self, new: "TransactionColumns") -> "TransactionColumns":
        """These and others, none of which is among these."""
        at = np.searchsorted(self.hashes, new.hashes)
        return TransactionColumns(
            pa.concat_arrays([self.app_ids, new.app_ids]),
            np.concatenate([self.versions, new.versions]),
            np.concatenate([self.updated, new.updated]),
            np.insert(self.hashes, at, new.hashes),
            np.insert(self.places, at, new.places + len(self)),
        )

    def without(self, app_ids: Iterable[str]) -> "TransactionColumns":
        gone = [row for app_id in app_ids if (row := self._row(app_id)) is not None]
        wanted = np.ones(len(self), dtype=bool)
        wanted[gone] = False
        return self.where(wanted)

    def _row(self, app_id: str) -> int | None:
        hashed = np.int64(hash(app_id))
        first = int(np.searchsorted(self.hashes, hashed))
        while first < len(self.hashes) and self.hashes[first] == hashed:
            row = int(self.places[first])
            if self.app_ids[row].as_py() == app_id:
                return row
            first += 1
        return None


class _Values(ValuesView[Transaction]):
    def __init__(self, columns: TransactionColumns) -> None:
        super().__init__(columns)
        self._columns = columns

    def __iter__(self) -> Iterator[Transaction]:
        known = self._columns
        return map(Transaction, known.app_ids.to_pylist(), known.versions.tolist(), known.updated.tolist())


def columns_of(done: Sequence[Transaction]) -> TransactionColumns:
    return TransactionColumns.of(
        pa.array([one.app_id for one in done], pa.large_string()),
        np.array([one.version for one in done], dtype=np.int64),
        np.array([one.updated_ms for one in done], dtype=np.int64),
    )


NO_IDS = columns_of([])


class ChunkIds(Overlay[str, Transaction]):
    """The newest ids are objects, all older ones columns."""

    __slots__ = ()

    def __init__(self, base: Mapping[str, Transaction] = NO_IDS) -> None:
        super().__init__(base)

    def columns(self) -> TransactionColumns:
        whole = self._merge()
        assert isinstance(whole, TransactionColumns)
        return whole

    def since(self, oldest_ms: int, floor: int) -> "ChunkIds":
        """Without those that were recorded before that moment, or are at or below the floor."""
        known = self.columns()
        return ChunkIds(known.where((known.updated >= oldest_ms) & (known.versions > floor)))

    def _merged(
        self, base: Mapping[str, Transaction], changes: Mapping[str, Transaction | None]
    ) -> Mapping[str, Transaction]:
        assert isinstance(base, TransactionColumns)
        return base.without(changes).with_new(columns_of([done for done in changes.values() if done is not None]))
