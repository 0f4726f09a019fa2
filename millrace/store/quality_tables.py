"""The control store's table of what chunks tell about the rules of quality."""

from sqlalchemy import JSON, Column, Integer, Table, Text

from millrace.store.tables import metadata

# Only of chunks whose definition has rules. Dropped when the import has settled: its report is then among its options.
chunk_quality = Table(
    "chunk_quality",
    metadata,
    Column("import_id", Text, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("facts", JSON, nullable=False),
)
