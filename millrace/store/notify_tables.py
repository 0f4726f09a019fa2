"""Who wants to hear of which events, and what has not reached them yet."""

from sqlalchemy import JSON, BigInteger, Boolean, Column, Index, Integer, Table, Text

from millrace.store.tables import metadata

# `position`: events up to this number are queued or passed over. `secrets`: the newest first, each with its last moment.
subscriptions = Table(
    "subscriptions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("types", JSON, nullable=False),
    Column("ordering", Text, nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("secrets", JSON, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("delivered", BigInteger, nullable=False),
    Column("given_up", BigInteger, nullable=False),
    Column("last_delivered", JSON),
    Column("last_error", JSON),
)
Index("subscriptions_by_name", subscriptions.c.tenant, subscriptions.c.name, unique=True)

# One row per event on its way to a subscriber, by the event's number; it goes when it has arrived or is given up.
deliveries = Table(
    "deliveries",
    metadata,
    Column("subscription", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("since_us", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_us", BigInteger, nullable=False),
)
