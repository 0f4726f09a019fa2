"""The control store's tables about tenants that leave."""

from sqlalchemy import BigInteger, Column, Table, Text

from millrace.store.tables import metadata

# Tenants that were deleted and can still be restored, or wait to be erased.
departures = Table(
    "departures",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("deleted_us", BigInteger, nullable=False),
    Column("erase_us", BigInteger, nullable=False),
)
