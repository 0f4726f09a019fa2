"""Cells as a column declares them: without the white space around them, and null where a text for null stands."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millrace.model.columns import Column
from millrace.model.written import Writing
from millrace.validate.expected import meaning


def has_blanks(column: Column) -> bool:
    return column.written.trim or bool(column.written.null_texts)


def without_blanks(column: Column, cells: pa.Array, null_text: str | None = None) -> pa.Array:
    """Binary cells that are UTF-8. A cell that trimming turns into the file's `null_text` is null too."""
    text = cells.view(pa.string())
    if column.written.trim:
        trimmed = pc.utf8_trim_whitespace(text)
        if null_text is not None:
            is_null = pc.and_(pc.equal(trimmed, null_text), pc.not_equal(trimmed, text))
            trimmed = pc.if_else(is_null.fill_null(False), pa.scalar(None, pa.string()), trimmed)
        text = trimmed
    if column.written.null_texts:
        is_null = pc.is_in(text if _is_text(column) else pc.utf8_trim(text, " \t"), _null_texts(column.written))
        text = pc.if_else(is_null, pa.scalar(None, pa.string()), text)
    return text.view(pa.binary())


def values_without_blanks(column: Column, values: Sequence[Any]) -> Sequence[Any]:
    """The same for parsed JSON values, of which only strings count."""
    nulls, trim, is_text = set(column.written.null_texts), column.written.trim, _is_text(column)

    def cleaned(value: Any) -> Any:
        if type(value) is not str:
            return value
        kept = value.strip() if trim else value
        return None if (kept if is_text else kept.strip(" \t")) in nulls else kept

    return [cleaned(value) for value in values]


def _is_text(column: Column) -> bool:
    """Whether spaces around a value belong to it."""
    return meaning(column) in ("string", "enum", "uuid")


@lru_cache(maxsize=1024)
def _null_texts(written: Writing) -> pa.Array:
    return pa.array(written.null_texts, pa.string())
