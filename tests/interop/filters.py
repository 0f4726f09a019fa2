"""Conditions, and how many rows each must find. Readers leave out files by the statistics in the log: they must not leave out
too many, and cannot read a file that is not there."""

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from millrace.lake.schema import TableSpec
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from tests.interop.shapes import DAYS, MOMENTS
from tests.interop.table import MatrixTable
from tests.support.lake import SCHEMA, stage, text_of

FILES, ROWS = 36, 100
FILTERED, PRUNED = "filters", "filters, 36 files, 35 of them deleted"
ASKED_KEY = 31

Filters = dict[tuple[str, Any], int]


def filters_of(table: MatrixTable) -> Filters:
    rows = [row for _, row in table.model.rows.values()]
    asked = table.shape.row(ASKED_KEY, 300, wide=False)
    pairs = [(name, asked[name]) for name in ("id", "n", "price", "note")]
    pairs += [("at", moment) for moment in MOMENTS if moment] + [("day", day) for day in DAYS if day]
    pairs += [("note", None), ("at", None)]
    return {(name, value): sum(row[name] == value for row in rows) for name, value in pairs}


def one_file_of_many(root: Path, mode: str) -> Path:
    """The first file has all rows that `pruned_filters` ask for; the others are gone."""
    table = LakeTable(Store(root), TableSpec("keyed", SCHEMA, ("id",), mode))
    files = [stage(table.store, [(key, 1) for key in range(n * ROWS, (n + 1) * ROWS)]) for n in range(FILES)]
    table.apply(files)
    for file in files[1:]:
        table.store.delete(file.path)
    return root


def pruned_filters() -> Filters:
    return {("id", 1): 1, ("text", text_of(1, 1)): 1}


@dataclass(frozen=True)
class Dialect:
    """How an engine quotes a name, and how it tells a moment of UTC."""

    quote: str
    moment: str

    def condition(self, column: str, value: Any) -> str:
        name = f"{self.quote}{column}{self.quote}"
        return f"{name} is null" if value is None else f"{name} = {self._literal(value)}"

    def _literal(self, value: Any) -> str:
        if isinstance(value, datetime):
            return self.moment.format(f"'{value:%Y-%m-%d %H:%M:%S.%f}+00:00'")
        if isinstance(value, date):
            return f"DATE '{value.isoformat()}'"
        if isinstance(value, Decimal):
            return f"CAST('{value:f}' AS DECIMAL(18, 4))"
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        return repr(value)


OF_SPARK = Dialect("`", "TIMESTAMP {}")
OF_DUCKDB = Dialect('"', "TIMESTAMPTZ {}")
# A plain literal has nanoseconds, which end in 2262.
OF_DELTALAKE = Dialect('"', "arrow_cast({}, 'Timestamp(Microsecond, Some(\"UTC\"))')")
