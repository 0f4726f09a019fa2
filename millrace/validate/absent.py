"""The values of a column that the file does not have: its default, else null, else a fault in each row."""

import numpy as np
import pyarrow as pa

from millrace.arrow.types import arrow_type
from millrace.model.columns import Column
from millrace.model.defaults import stored_default
from millrace.validate.parsed import missing
from millrace.validate.text import Outcome


def absent_column(column: Column, is_key: bool, rows: int) -> Outcome:
    value = stored_default(column)
    if value is not None:
        return pa.array([value], arrow_type(column)).take(pa.array(np.zeros(rows, np.int64))), []
    empty = pa.nulls(rows, arrow_type(column))
    if rows and (is_key or not column.nullable):
        return empty, [missing(column, is_key, np.arange(rows, dtype=np.int64))]
    return empty, []
