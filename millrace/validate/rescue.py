"""Unknown columns and fields in, one compact JSON object per row out, with sorted keys.

A cell without a value is left out. A row without any such value gets null."""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from millrace.model.columns import column_of
from millrace.validate.arrow_columns import as_text, plain
from millrace.validate.cells import without_broken_text
from millrace.validate.faults import RowFault
from millrace.validate.text import Outcome

# Less than orjson's limit, so that the result never depends on the caller's stack.
_DEEPEST = 200
_SPACE = 32


def rescued(parts: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """The object of each row. `parts` are the columns' values as JSON text; null where there is none."""
    if not parts:
        return pa.nulls(rows, pa.string())
    # No Arrow kernel joins around nulls here: one of them loses rows without any value.
    named = [
        pc.binary_join_element_wise(f",{orjson.dumps(name).decode()}:", parts[name], "").fill_null("")
        for name in sorted(parts)
    ]
    inside = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*named, ""), 1)
    objects = pc.binary_join_element_wise("{", inside, "}", "")
    return pc.if_else(pc.equal(inside, ""), pa.scalar(None, pa.string()), objects)


def text_parts(name: str, cells: pa.Array, *, clean: bool) -> Outcome:
    """Cells of a CSV column as JSON strings; `clean`: all are known to be UTF-8."""
    faults: list[RowFault] = []
    if not clean:
        cells, faults = without_broken_text(column_of(name, "string", nullable=True), cells)
    return _quoted(cells.view(pa.string())), faults


def arrow_parts(name: str, given: pa.Array) -> Outcome:
    """An Arrow column of any type as JSON values."""
    cells = plain(given)
    if pat.is_binary(cells.type):
        return text_parts(name, cells, clean=False)
    if pat.is_null(cells.type):
        return pa.nulls(len(cells), pa.string()), []
    if pat.is_temporal(cells.type):
        return _quoted(as_text(cells)), []
    if pat.is_floating(cells.type):
        text = cells.cast(pa.string())
        return pc.if_else(pc.is_finite(cells), text, _quoted(text)), []
    if pat.is_nested(cells.type):
        return _nested(cells), []
    return cells.cast(pa.string()), []


def value_parts(values: Sequence[Any]) -> pa.Array:
    """Python values as JSON; None where there is none."""
    return pa.array([None if value is None else written(value) for value in values], pa.string())


def written(value: Any) -> str:
    """A value as compact JSON with sorted keys. Raises TypeError if it is nested too deep."""
    try:
        return orjson.dumps(value, default=_plain_value, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:
        return orjson.dumps(_narrowed(value), default=_plain_value, option=orjson.OPT_SORT_KEYS).decode()


def _narrowed(value: Any, depth: int = 0) -> Any:
    """The value as JSON with numbers of more than 64 bits written in full."""
    if depth > _DEEPEST:
        raise TypeError("nested too deep")
    if isinstance(value, dict):
        return {name: _narrowed(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, list):
        return [_narrowed(inner, depth + 1) for inner in value]
    return orjson.Fragment(str(value)) if isinstance(value, int) and value.bit_length() > 63 else value


def _plain_value(value: Any) -> Any:
    if isinstance(value, Decimal) and value.is_finite():
        return orjson.Fragment(str(value))
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _nested(cells: pa.Array) -> pa.Array:
    try:
        return value_parts(cells.to_pylist())
    except (ValueError, OverflowError, TypeError):
        # Arrow may hold years after 9999 and text that is not UTF-8. Python cannot.
        return _quoted(as_text(cells))


def _quoted(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', _escaped(text), '"', "")


def _escaped(text: pa.Array) -> pa.Array:
    data = text.buffers()[2]
    letters = np.frombuffer(data or b"", np.uint8)
    for mark in ("\\", '"'):
        if (letters == ord(mark)).any():
            text = pc.replace_substring(text, mark, f"\\{mark}")
    for code in np.unique(letters[letters < _SPACE]).tolist():
        text = pc.replace_substring(text, chr(code), json.dumps(chr(code))[1:-1])
    return text
