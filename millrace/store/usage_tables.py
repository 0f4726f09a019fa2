"""What each tenant used, by day: counted in the transaction in which an import ends, so exactly once."""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Float, Table, Text
from sqlalchemy.dialects import postgresql, sqlite

from millrace.store.tables import metadata

# `day` in UTC. `storage_bytes` is as last measured that day; `held_seconds` how long senders waited for their quotas.
usage = Table(
    "usage",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("day", Text, primary_key=True),
    Column("bytes", BigInteger, nullable=False, default=0),
    Column("rows_accepted", BigInteger, nullable=False, default=0),
    Column("rows_rejected", BigInteger, nullable=False, default=0),
    Column("rows_ignored", BigInteger, nullable=False, default=0),
    Column("imports", BigInteger, nullable=False, default=0),
    Column("appends", BigInteger, nullable=False, default=0),
    Column("chunks", BigInteger, nullable=False, default=0),
    Column("refused", BigInteger, nullable=False, default=0),
    Column("held_seconds", Float, nullable=False, default=0.0),
    Column("storage_bytes", BigInteger),
)
COUNTED = (
    "bytes", "rows_accepted", "rows_rejected", "rows_ignored", "imports", "appends", "chunks", "refused", "held_seconds",
)  # fmt: skip
_NOTHING: dict[str, Any] = dict.fromkeys(COUNTED, 0)


def add_usage(connection: Connection, used: Iterable[Mapping[str, Any]]) -> None:
    """Adds to what is there; each names tenant, day and some of the counted columns."""
    rows = [{**_NOTHING, **one} for one in used]
    if rows:
        insert = _insert(connection)
        added = {name: usage.c[name] + insert.excluded[name] for name in COUNTED}
        connection.execute(insert.on_conflict_do_update(index_elements=["tenant", "day"], set_=added), rows)


def note_storage(connection: Connection, tenant: str, day: str, size: int) -> None:
    insert = _insert(connection)
    row = {**_NOTHING, "tenant": tenant, "day": day, "storage_bytes": size}
    connection.execute(
        insert.on_conflict_do_update(index_elements=["tenant", "day"], set_={"storage_bytes": size}), row
    )


def _insert(connection: Connection) -> Any:
    return postgresql.insert(usage) if connection.dialect.name == "postgresql" else sqlite.insert(usage)
