"""Query results as JSON: DuckDB's Python values in, JSON values out.

Decimals and integers beyond 64 bits become strings, dates and times ISO 8601, bytes base64, NaN and infinities the strings
"NaN", "Infinity" and "-Infinity" (null is left to mean null). Maps with other keys than strings get their keys as text."""

import base64
import datetime
import json
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

# DuckDB types whose Python values are JSON values already: they need no conversion.
PLAIN_TYPES = frozenset(
    {"BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "VARCHAR"}
)
_LARGEST = 1 << 63


class RowEncoder:
    """Encodes rows one by one, so that their size is known before they are collected."""

    def __init__(self, types: Sequence[str]) -> None:
        self._looked_at = [index for index, kind in enumerate(types) if kind not in PLAIN_TYPES]
        self._encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

    def encode(self, row: Sequence[Any]) -> bytes:
        values = list(row)
        for index in self._looked_at:
            values[index] = plain(values[index])
        # A lone surrogate cannot be UTF-8. "?" replaces it.
        return self._encode(values).encode("utf-8", "replace")


def plain(value: Any) -> Any:
    """One value of any type as a JSON value."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if -_LARGEST <= value < _LARGEST else str(value)
    if isinstance(value, float):
        return _plain_float(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {_key(key): plain(item) for key, item in value.items()}
    return _as_text(value)


def _plain_float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _key(key: Any) -> str:
    shown = plain(key)
    return shown if isinstance(shown, str) else json.dumps(shown)


def _as_text(value: Any) -> str:
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime.timedelta):
        return f"P{value.days}DT{value.seconds}.{value.microseconds:06}S"
    return str(value)
