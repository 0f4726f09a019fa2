"""The control store's tables about tenants that leave."""

from sqlalchemy import JSON, BigInteger, Boolean, Column, Table, Text

from millrace.store.tables import metadata

# Tenants that were deleted and can still be restored, or wait to be erased.
departures = Table(
    "departures",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("deleted_us", BigInteger, nullable=False),
    Column("erase_us", BigInteger, nullable=False),
)

# Tenants that are being erased or were: what is to be deleted outside this store, and the receipt.
erasures = Table(
    "erasures",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("begun_us", BigInteger, nullable=False),
    Column("is_done", Boolean, nullable=False),
    Column("receipt", JSON, nullable=False),
    Column("definitions", JSON, nullable=False),
)
