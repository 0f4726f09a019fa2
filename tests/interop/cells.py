"""Rows as every engine tells them: Python values in, one text for each row out. Needs the standard library alone, because it
also runs in the engines' own environments."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


def row_texts(rows: Iterable[Sequence[Any]]) -> list[str]:
    """Sorted, because no engine promises an order."""
    return sorted(json.dumps([plain(cell) for cell in row], ensure_ascii=False) for row in rows)


def plain(cell: Any) -> Any:  # noqa: PLR0911
    """A moment becomes its microseconds since 1970; one without a time zone is taken as it is."""
    if isinstance(cell, datetime):
        return (cell.astimezone(UTC).replace(tzinfo=None) - _EPOCH if cell.tzinfo else cell - _EPOCH) // _MICROSECOND
    if isinstance(cell, date):
        return cell.isoformat()
    if isinstance(cell, Decimal):
        return f"{cell:f}"
    if isinstance(cell, bytes | bytearray):
        return bytes(cell).hex()
    if hasattr(cell, "asDict"):
        return {name: plain(part) for name, part in cell.asDict().items()}
    if isinstance(cell, dict):
        return {name: plain(part) for name, part in cell.items()}
    if isinstance(cell, list | tuple):
        return [plain(part) for part in cell]
    return cell
