"""The control store's tables, for SQLite and PostgreSQL alike."""

from sqlalchemy import JSON, BigInteger, Boolean, Column, Index, Integer, LargeBinary, MetaData, Table, Text

metadata = MetaData()

# SQLite only autoincrements INTEGER.
_SERIAL = BigInteger().with_variant(Integer, "sqlite")

positions = Table(
    "positions",
    metadata,
    Column("log", Text, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("next_offset", BigInteger, nullable=False),
)

tenants = Table(
    "tenants",
    metadata,
    Column("name", Text, primary_key=True),
    Column("folded_name", Text, nullable=False, unique=True),
    Column("partition", Integer, nullable=False),
    Column("agreement", JSON, nullable=False),
    Column("revision", Integer, nullable=False),
)

tables = Table(
    "tables",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("folded_name", Text, nullable=False),
    Column("definition", Text, nullable=False),
    Column("last_version", BigInteger, nullable=False),
    Column("defined_us", BigInteger, nullable=False),
    Column("floor", BigInteger, nullable=False),
    Column("open_imports", Integer, nullable=False),
    Column("dropped_us", BigInteger),
    Column("is_purged", Boolean, nullable=False),
)

Index("tables_by_folded_name", tables.c.tenant, tables.c.folded_name, unique=True)

Index("tables_by_drop", tables.c.dropped_us)

# Every definition a table ever had.
revisions = Table(
    "revisions",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("table_name", Text, primary_key=True),
    Column("revision", Integer, primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("definition", Text, nullable=False),
    Column("defined_us", BigInteger, nullable=False),
)

# Ops that wait for their turn on an exclusive table, in the order they came.
waiting = Table(
    "waiting",
    metadata,
    Column("number", _SERIAL, primary_key=True, autoincrement=True),
    Column("tenant", Text, nullable=False),
    Column("table_name", Text, nullable=False),
    Column("op_id", Text, nullable=False, unique=True),
    Column("op", JSON, nullable=False),
    sqlite_autoincrement=True,
)
Index("waiting_by_table", waiting.c.tenant, waiting.c.table_name, waiting.c.number)

spans = Table(
    "spans",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("parent", Text),
    Column("state", Text, nullable=False),
    Column("begun_us", BigInteger, nullable=False),
    Column("ended_us", BigInteger),
    Column("seen_us", BigInteger, nullable=False),
    Column("lease_seconds", Integer, nullable=False),
    Column("open_members", Integer, nullable=False),
    Column("imports", Integer, nullable=False),
    Column("counts", JSON, nullable=False),
    Column("error", JSON),
)
Index("spans_by_state", spans.c.state)

# How far each stream of rows has come.
streams = Table(
    "streams",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("table_name", Text, primary_key=True),
    Column("stream", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("touched_us", BigInteger, nullable=False),
)

# The rejected rows of an import that were replayed, amended or discarded, as a bitmap of row numbers.
claims = Table(
    "claims",
    metadata,
    Column("import_id", Text, primary_key=True),
    Column("rows", LargeBinary, nullable=False),
)

imports = Table(
    "imports",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("table_name", Text, nullable=False),
    Column("definition", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("first_version", BigInteger, nullable=False),
    Column("versions", BigInteger, nullable=False),
    Column("sinks", JSON, nullable=False),
    Column("begun_us", BigInteger, nullable=False),
    Column("options", JSON, nullable=False),
    Column("idempotency_key", Text),
    Column("announced", JSON),
    Column("markers", JSON),
    Column("error", JSON),
    Column("final", Text),
    Column("ended_us", BigInteger),
    Column("counts", JSON, nullable=False),
    Column("durable", JSON, nullable=False),
    Column("kind", Text, nullable=False),
    Column("span", Text),
    Column("of", Text),
    Column("publish", Text, nullable=False),
    Column("touched_us", BigInteger, nullable=False),
)
Index("imports_by_table", imports.c.tenant, imports.c.table_name, imports.c.id)
Index("imports_by_key", imports.c.tenant, imports.c.idempotency_key)
Index("imports_by_state", imports.c.state)

# One row per (import, chunk): a fact that comes again changes nothing. Dropped when the import has settled.
chunks = Table(
    "chunks",
    metadata,
    Column("import_id", Text, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("rows", BigInteger, nullable=False),
    Column("accepted", BigInteger, nullable=False),
    Column("rejected", BigInteger, nullable=False),
    Column("ignored", BigInteger, nullable=False),
    Column("failure", Text),
    Column("checksum", BigInteger, nullable=False),
)

durable_chunks = Table(
    "durable_chunks",
    metadata,
    Column("import_id", Text, primary_key=True),
    Column("sink", Text, primary_key=True),
    Column("number", Integer, primary_key=True),
)

# Rows that a sink will never take, by chunk; the sum goes with the import when it settles.
refused_rows = Table(
    "refused_rows",
    metadata,
    Column("import_id", Text, primary_key=True),
    Column("sink", Text, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("rows", BigInteger, nullable=False),
)

requests = Table(
    "requests",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("requested_us", BigInteger, nullable=False),
    Column("applied", Boolean, nullable=False, default=False),
    Column("result", JSON),
    Column("refusal", JSON),
)
Index("requests_by_time", requests.c.requested_us)

# Also the outbox: `published` turns true when the event is in Kafka.
events = Table(
    "events",
    metadata,
    Column("number", _SERIAL, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("tenant", Text, nullable=False),
    Column("event", JSON, nullable=False),
    Column("published", Boolean, nullable=False, default=False),
    Column("kept_from", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)
Index("events_unpublished", events.c.published)

# Close effects wait here until the markers are in raw-input.
closings = Table("closings", metadata, Column("import_id", Text, primary_key=True))

# Chunks that the controller itself puts into raw-input wait here until they are there.
outbox = Table(
    "outbox",
    metadata,
    Column("import_id", Text, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("record", LargeBinary, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("tenant", Text),
    Column("created_us", BigInteger, nullable=False),
)

uploads = Table(
    "uploads",
    metadata,
    Column("import_id", Text, primary_key=True),
    Column("length", BigInteger),
    Column("confirmed", JSON),
    Column("seen_us", BigInteger, nullable=False),
)
