"""What a MySQL or MariaDB table holds, as the platform knows it: rows of a query in, an Arrow table out."""

from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa

from millrace.arrow.types import arrow_type
from millrace.model.table import Definition


def table_of(definition: Definition, names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """The last column says which numbers were not finite. It is left out of the result."""
    *shown, marked = names
    columns = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    for at, marks in enumerate(columns[marked]):
        for name, text in orjson.loads(marks).items() if marks else ():
            columns[name][at] = float(text)
    for column in definition.columns:
        if pa.types.is_boolean(arrow_type(column)):
            columns[column.name] = [None if cell is None else bool(cell) for cell in columns[column.name]]
    return pa.table({name: columns[name] for name in shown})
