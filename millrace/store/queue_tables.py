"""The store's tables of deliveries to other sinks; exchange/queues.py is their only reader and writer."""

from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, Table, Text

from millrace.store.tables import metadata

# One row per target of a table. The first block names it; then how the target is doing, the roster, the operator's orders.
queues = Table(
    "queues",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("table_name", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("target", Text, primary_key=True),
    Column("parked_since", Float),
    Column("reason", Text),
    Column("fault", Text),
    Column("tries", Integer, nullable=False),
    Column("next_try", Float, nullable=False),
    Column("last_version", BigInteger, nullable=False),
    Column("refused_rows", BigInteger, nullable=False),
    Column("most_rows", BigInteger),
    Column("budget_seconds", Float),
    Column("member", Text),
    Column("waived_below", BigInteger, nullable=False),
    Column("waived_until", Text, nullable=False),
    Column("resume_asked", Boolean, nullable=False),
    Column("announced", Text),
    Column("changed_us", BigInteger, nullable=False),
)

# One row per group of chunks that waits for a target. Items leave in the order of `place`.
parked = Table(
    "parked",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("table_name", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("target", Text, primary_key=True),
    Column("place", BigInteger, primary_key=True),
    Column("digest", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("item", Text, nullable=False),
)
