"""Adds to what a tenant used on a day."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from sqlalchemy import Connection

from millrace.store.engine import insert_into
from millrace.store.tables import usage

COUNTED = (
    "bytes", "rows_accepted", "rows_rejected", "rows_ignored", "imports", "appends", "chunks", "refused", "held_seconds",
)  # fmt: skip
_NOTHING: dict[str, Any] = dict.fromkeys(COUNTED, 0)


def add_usage(connection: Connection, used: Iterable[Mapping[str, Any]]) -> None:
    """Adds to what is there; each names tenant, day and some of the counted columns."""
    rows = [{**_NOTHING, **one} for one in used]
    if rows:
        connection.execute(_add(connection.dialect.name), rows)


# Built once: making a statement costs more than running it.
@cache
def _add(dialect: str) -> Any:
    insert = insert_into(dialect, usage)
    added = {name: usage.c[name] + insert.excluded[name] for name in COUNTED}
    return insert.on_conflict_do_update(index_elements=["tenant", "day"], set_=added)


def note_storage(connection: Connection, tenant: str, day: str, size: int) -> None:
    insert = insert_into(connection.dialect.name, usage)
    row = {**_NOTHING, "tenant": tenant, "day": day, "storage_bytes": size}
    connection.execute(
        insert.on_conflict_do_update(index_elements=["tenant", "day"], set_={"storage_bytes": size}), row
    )
