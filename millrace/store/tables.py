"""The control store's tables, for SQLite and PostgreSQL alike."""

from sqlalchemy import JSON, BigInteger, Boolean, Float, Index, Integer, LargeBinary, Text

from millrace.model.queues import BEHIND_EVERY_ID
from millrace.store.columns import SERIAL, key, optional, required, table

positions = table("positions", *key(Text, "log"), *key(Integer, "partition"), *required(BigInteger, "next_offset"))

# The last op of each signer that was taken from each partition of the table log: what it signed before is a copy.
signers = table("signers", *key(Text, "signer"), *key(Integer, "partition"), *required(BigInteger, "taken"))

tenants = table(
    "tenants",
    *key(Text, "name"),
    *required(Text, "folded_name", unique=True),
    *required(Integer, "partition", "revision"),
    *required(JSON, "agreement"),
)

tables = table(
    "tables",
    *key(Text, "tenant", "name"),
    *required(Text, "folded_name", "definition"),
    *required(BigInteger, "last_version", "defined_us", "floor"),
    *required(Integer, "open_imports"),
    *optional(BigInteger, "dropped_us"),
    *required(Boolean, "is_purged"),
)
Index("tables_by_folded_name", tables.c.tenant, tables.c.folded_name, unique=True)
Index("tables_by_drop", tables.c.dropped_us)

# Every definition a table ever had.
revisions = table(
    "revisions",
    *key(Text, "tenant", "table_name"),
    *key(Integer, "revision"),
    *required(Integer, "generation"),
    *required(Text, "fingerprint", "definition"),
    *required(BigInteger, "defined_us"),
)

# Ops that wait for their turn on an exclusive table, in the order they came.
waiting = table(
    "waiting",
    *key(SERIAL, "number", autoincrement=True),
    *required(Text, "tenant", "table_name"),
    *required(Text, "op_id", unique=True),
    *required(JSON, "op"),
    sqlite_autoincrement=True,
)
Index("waiting_by_table", waiting.c.tenant, waiting.c.table_name, waiting.c.number)

spans = table(
    "spans",
    *key(Text, "tenant", "name"),
    *optional(Text, "parent"),
    *required(Text, "state"),
    *required(BigInteger, "begun_us", "seen_us"),
    *optional(BigInteger, "ended_us"),
    *required(Integer, "lease_seconds", "open_members", "imports"),
    *required(JSON, "counts"),
    *optional(JSON, "error"),
)
Index("spans_by_state_of_tenant", spans.c.state, spans.c.tenant)

# How far each stream of rows has come.
streams = table("streams", *key(Text, "tenant", "table_name", "stream"), *required(BigInteger, "seq", "touched_us"))

# The SHA-256 of the rows that a request with an idempotency key brought; its key names a stream of one request.
row_digests = table(
    "row_digests",
    *key(Text, "tenant", "table_name", "stream"),
    *required(Text, "digest"),
    *required(BigInteger, "touched_us"),
)

# The rejected rows of an import that were replayed, amended or discarded, as a bitmap of row numbers.
claims = table("claims", *key(Text, "import_id"), *required(LargeBinary, "rows"))

imports = table(
    "imports",
    *key(Text, "id"),
    *required(Text, "tenant", "table_name", "definition", "state", "kind", "publish"),
    *required(BigInteger, "first_version", "versions", "begun_us", "touched_us"),
    *required(JSON, "sinks", "options", "counts", "durable"),
    *optional(Text, "idempotency_key", "final", "span", "of"),
    *optional(JSON, "announced", "markers", "error"),
    *optional(BigInteger, "ended_us"),
)
Index("imports_by_table", imports.c.tenant, imports.c.table_name, imports.c.id)
Index("imports_by_key", imports.c.tenant, imports.c.idempotency_key)
Index("imports_by_state_of_tenant", imports.c.state, imports.c.tenant)

# One row per (import, chunk): a fact that comes again changes nothing. Dropped when the import has settled.
chunks = table(
    "chunks",
    *key(Text, "import_id"),
    *key(Integer, "number"),
    *required(BigInteger, "rows", "accepted", "rejected", "ignored", "checksum"),
    *optional(Text, "failure"),
)

durable_chunks = table("durable_chunks", *key(Text, "import_id", "sink"), *key(Integer, "number"))

# Rows that a sink will never take, by chunk; the sum goes with the import when it settles.
refused_rows = table(
    "refused_rows", *key(Text, "import_id", "sink"), *key(Integer, "number"), *required(BigInteger, "rows")
)

requests = table(
    "requests",
    *key(Text, "id"),
    *required(Text, "kind", "tenant", "subject"),
    *required(BigInteger, "requested_us"),
    *required(Boolean, "applied", default=False),
    *optional(JSON, "result", "refusal"),
)
Index("requests_by_time", requests.c.requested_us)

# Also the outbox: `published` turns true when the event is in Kafka.
events = table(
    "events",
    *key(SERIAL, "number", autoincrement=True),
    *required(Text, "id", unique=True),
    *required(Text, "tenant"),
    *required(JSON, "event"),
    *required(Boolean, "published", default=False),
    *required(BigInteger, "kept_from"),
    sqlite_autoincrement=True,
)
Index("events_unpublished", events.c.published)

# Close effects wait here until the markers are in raw-input.
closings = table("closings", *key(Text, "import_id"))

# Chunks that the controller itself puts into raw-input wait here until they are there.
outbox = table("outbox", *key(Text, "import_id"), *key(Integer, "number"), *required(LargeBinary, "record"))

tokens = table(
    "tokens",
    *key(Text, "digest"),
    *required(Text, "name"),
    *optional(Text, "tenant"),
    *required(BigInteger, "created_us"),
)
Index("tokens_by_tenant", tokens.c.tenant, tokens.c.name)

uploads = table(
    "uploads",
    *key(Text, "import_id"),
    *optional(BigInteger, "length"),
    *optional(JSON, "confirmed"),
    *required(BigInteger, "seen_us"),
)

# Only of chunks whose definition has rules. Dropped when the import has settled: its report is then among its options.
chunk_quality = table("chunk_quality", *key(Text, "import_id"), *key(Integer, "number"), *required(JSON, "facts"))

# Tenants that were deleted and can still be restored, or wait to be erased.
departures = table("departures", *key(Text, "tenant"), *required(BigInteger, "deleted_us", "erase_us"))

# Tenants that are being erased or were: what is to be deleted outside this store, and the receipt.
erasures = table(
    "erasures",
    *key(Text, "tenant"),
    *required(BigInteger, "begun_us"),
    *required(Boolean, "is_done"),
    *required(JSON, "receipt", "definitions"),
)

# What each tenant used, by day in UTC: counted in the transaction in which an import ends, so exactly once. `storage_bytes`
# is as last measured that day; `held_seconds` how long senders waited for their quotas.
usage = table(
    "usage",
    *key(Text, "tenant", "day"),
    *required(BigInteger, "bytes", "rows_accepted", "rows_rejected", "rows_ignored", default=0),
    *required(BigInteger, "imports", "appends", "chunks", "refused", default=0),
    *required(Float, "held_seconds", default=0.0),
    *optional(BigInteger, "storage_bytes"),
)

# `position`: events up to this number are queued or passed over. `secrets`: the newest first, each with its last moment.
subscriptions = table(
    "subscriptions",
    *key(Text, "id"),
    *required(Text, "tenant", "name", "url", "ordering"),
    *required(JSON, "types", "secrets"),
    *required(Boolean, "enabled"),
    *required(BigInteger, "position", "created_us", "delivered", "given_up"),
    *optional(JSON, "last_delivered", "last_error"),
)
Index("subscriptions_by_name", subscriptions.c.tenant, subscriptions.c.name, unique=True)

# One row per event on its way to a subscriber, by the event's number; it goes when it has arrived or is given up.
deliveries = table(
    "deliveries",
    *key(Text, "subscription"),
    *key(BigInteger, "number"),
    *required(BigInteger, "since_us", "next_us"),
    *required(Integer, "attempts"),
)

# One row per target of a table: how the target is doing, its place in the roster, the operator's orders. Only
# exchange/queues.py reads and writes this table and the next.
queues = table(
    "queues",
    *key(Text, "tenant", "table_name", "kind", "target"),
    *optional(Float, "parked_since", "budget_seconds"),
    *optional(Text, "reason", "fault", "member", "announced"),
    *required(Integer, "tries", default=0),
    *required(Float, "next_try", default=0.0),
    *required(BigInteger, "last_version", "refused_rows", "waived_below", default=0),
    *optional(BigInteger, "most_rows"),
    *required(Text, "waived_until", default=BEHIND_EVERY_ID),
    *required(Boolean, "resume_asked", default=False),
    *required(BigInteger, "changed_us"),
)

# One row per group of chunks that waits for a target. Items leave in the order of `place`.
parked = table(
    "parked",
    *key(Text, "tenant", "table_name", "kind", "target"),
    *key(BigInteger, "place"),
    *key(Text, "digest"),
    *required(BigInteger, "version", "size"),
    *required(Text, "item"),
)

# What a token may do, by its digest. A token without a row here may do everything where it is.
grants = table(
    "grants",
    *key(Text, "digest"),
    *required(Text, "role", "made_by"),
    *optional(JSON, "tables"),
    *optional(BigInteger, "expires_us", "last_used_us"),
)

# Which token a token was made with, by their digests. Tokens of earlier versions have no row here.
token_makers = table("token_makers", *key(Text, "digest"), *required(Text, "maker"))

# Rows are only ever added.
audit = table(
    "audit",
    *key(SERIAL, "number", autoincrement=True),
    *required(BigInteger, "at_us"),
    *required(Text, "request_id", "who", "role", "from_address", "action", "subject"),
    *optional(Text, "tenant"),
    *required(Integer, "status"),
    sqlite_autoincrement=True,
)
Index("audit_by_tenant", audit.c.tenant, audit.c.number)
