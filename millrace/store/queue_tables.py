"""The store's tables of deliveries to other sinks; exchange/queues.py is their only reader and writer."""

from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, Table, Text

from millrace.model.queues import BEHIND_EVERY_ID
from millrace.store.tables import metadata


def _key() -> list[Column[str]]:
    return [Column(name, Text, primary_key=True) for name in ("tenant", "table_name", "kind", "target")]


# One row per target of a table: how the target is doing, its place in the roster, the operator's orders.
queues = Table(
    "queues",
    metadata,
    *_key(),
    Column("parked_since", Float),
    Column("reason", Text),
    Column("fault", Text),
    Column("tries", Integer, nullable=False, default=0),
    Column("next_try", Float, nullable=False, default=0.0),
    Column("last_version", BigInteger, nullable=False, default=0),
    Column("refused_rows", BigInteger, nullable=False, default=0),
    Column("most_rows", BigInteger),
    Column("budget_seconds", Float),
    Column("member", Text),
    Column("waived_below", BigInteger, nullable=False, default=0),
    Column("waived_until", Text, nullable=False, default=BEHIND_EVERY_ID),
    Column("resume_asked", Boolean, nullable=False, default=False),
    Column("announced", Text),
    Column("changed_us", BigInteger, nullable=False),
)

# One row per group of chunks that waits for a target. Items leave in the order of `place`.
parked = Table(
    "parked",
    metadata,
    *_key(),
    Column("place", BigInteger, primary_key=True),
    Column("digest", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("item", Text, nullable=False),
)
