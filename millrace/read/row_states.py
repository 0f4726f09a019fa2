"""Which rejected rows are open, and how the others were closed: row numbers in, states out, without Python values per row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]
OPEN = "open"


@dataclass(frozen=True, slots=True)
class RowStates:
    """`closed`: by state the numbers of its rows, rising. `wanted`: only rows in these states are shown; None: all."""

    closed: Mapping[str, Numbers] = field(default_factory=dict)
    wanted: frozenset[str] | None = None

    def of(self, rows: Numbers) -> list[str]:
        """The state of each row."""
        names = [OPEN, *self.closed]
        return [names[place] for place in self._places(rows).tolist()]

    def count(self, rows: Numbers) -> dict[str, int]:
        counted = np.bincount(self._places(rows), minlength=len(self.closed) + 1).tolist()
        return dict(zip([OPEN, *self.closed], counted, strict=True))

    def only_wanted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if self.wanted is None:
            return rows
        names: Sequence[str] = [OPEN, *self.closed]
        places = [place for place, name in enumerate(names) if name in self.wanted]
        return rows.filter(pa.array(np.isin(self._places(numbers_of(rows)), places)))

    def _places(self, rows: Numbers) -> npt.NDArray[np.intp]:
        found = np.zeros(len(rows), np.intp)
        for place, closed in enumerate(self.closed.values(), 1):
            if len(closed):
                at = np.minimum(np.searchsorted(closed, rows), len(closed) - 1)
                found[closed[at] == rows] = place
        return found


ALL_OPEN = RowStates()


def numbers_of(rows: pa.RecordBatch) -> Numbers:
    # to_numpy imports pandas, which would take most of the first page's time.
    return np.asarray(np.from_dlpack(rows["row"]), np.int64)
