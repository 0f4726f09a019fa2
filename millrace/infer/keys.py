"""Columns of a sample in, the likely primary key out: one column whose values are unique, or a pair of columns.

Values are compared by a 64-bit hash. Rows beyond a limit are ignored."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from millrace.infer.avro import shown_type
from millrace.model.columns import Column
from millrace.model.stored_types import Avro

MOST_ROWS = 1_000_000
MOST_COLUMNS = 100
_PAIRED = 8
_LONGEST_VALUE = 200
# Fewer rows may be unique by chance. Then only a column with the name of a key becomes one.
_ENOUGH_FOR_ONE, _ENOUGH_FOR_TWO = 100, 20
_MIX = np.uint64(0x9E3779B97F4A7C15)

NAMED, HINTED, PLAIN = 0, 1, 2
_NAMES = ("id", "key", "uuid", "guid", "pk", "rowid", "row_id")
_ENDINGS = ("id", "key", "uuid", "guid", "_no", "number", "code", "_nr")

Hashes = npt.NDArray[np.uint64]


class KeyFinder:
    """Collects hashes of the columns that may be part of a key: never null, short, whole numbers, text, dates or times."""

    def __init__(self) -> None:
        self.rows = 0
        self._hashes: dict[str, list[Hashes]] | None = None

    def add(self, columns: Mapping[str, pa.Array], rows: int) -> None:
        """Adds the same columns of the next piece. A column that is missing once is no longer a candidate."""
        if not rows or self.rows >= MOST_ROWS:
            return
        watched = list(columns)[:MOST_COLUMNS] if self._hashes is None else list(self._hashes)
        known = self._hashes or {}
        self._hashes = {
            name: [*known.get(name, []), _hashed(columns[name])]
            for name in watched
            if name in columns and _may_be_key(columns[name])
        }
        self.rows += rows

    def likely(self, table: str, columns: Sequence[Column]) -> tuple[str, ...]:
        """The key, or nothing. `columns` are those whose type a key may have, in the order of the file."""
        whole = {name: np.concatenate(parts) for name, parts in (self._hashes or {}).items()}
        present = [(_rank(each.name, table), place, each) for place, each in enumerate(columns) if each.name in whole]
        ranked = sorted(present, key=lambda entry: entry[:2])
        for rank, _, each in ranked:
            if (rank < PLAIN or self._is_plausible(each)) and _differ(whole[each.name]):
                return (each.name,)
        if self.rows < _ENOUGH_FOR_TWO:
            return ()
        for one, other in combinations(ranked[:_PAIRED], 2):
            tells = min(one[0], other[0]) < PLAIN
            if tells and _differ(whole[one[2].name] * _MIX + whole[other[2].name]):
                return (one[2].name, other[2].name)
        return ()

    def _is_plausible(self, candidate: Column) -> bool:
        """Whether unique values suggest a key. Dates and times are often unique without being one."""
        moment = shown_type(candidate.avro).startswith(("date", "time"))
        return self.rows >= _ENOUGH_FOR_ONE and not moment


def may_be_key(avro: Avro) -> bool:
    name = shown_type(avro)
    exact = name.startswith("decimal") and name.endswith(",0)")
    return exact or name in ("int", "long", "string", "uuid", "date", "timestamp-micros", "timestamp-millis")


def _rank(name: str, table: str) -> int:
    folded = name.lower()
    if folded in _NAMES or folded in (f"{table.lower()}_id", f"{table.lower()}id"):
        return NAMED
    return HINTED if folded.endswith(_ENDINGS) else PLAIN


def _may_be_key(values: pa.Array) -> bool:
    if values.null_count or pat.is_nested(values.type) or pat.is_floating(values.type) or pat.is_boolean(values.type):
        return False
    if pat.is_string(values.type) or pat.is_binary(values.type):
        longest: int = pc.max(pc.binary_length(values)).as_py() or 0
        return longest <= _LONGEST_VALUE
    return bool(pat.is_integer(values.type) or pat.is_temporal(values.type) or pat.is_decimal(values.type))


def _hashed(values: pa.Array) -> Hashes:
    if pat.is_temporal(values.type) or pat.is_decimal(values.type):
        values = values.cast(pa.string())
    series = pl.from_arrow(values)
    assert isinstance(series, pl.Series)
    return series.hash().to_numpy()


def _differ(hashes: Hashes) -> bool:
    return len(hashes) > 0 and len(np.unique(hashes)) == len(hashes)
