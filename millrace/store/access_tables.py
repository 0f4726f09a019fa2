"""The control store's tables about who may come in and who changed what."""

from sqlalchemy import JSON, BigInteger, Column, Connection, Index, Integer, Table, Text, event

from millrace.store.tables import metadata

_SERIAL = BigInteger().with_variant(Integer, "sqlite")

# What a token may do, by its digest. A token without a row here may do everything where it is.
grants = Table(
    "grants",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("role", Text, nullable=False),
    Column("tables", JSON),
    Column("expires_us", BigInteger),
    Column("last_used_us", BigInteger),
    Column("made_by", Text, nullable=False),
)

# Rows are only ever added.
audit = Table(
    "audit",
    metadata,
    Column("number", _SERIAL, primary_key=True, autoincrement=True),
    Column("at_us", BigInteger, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("from_address", Text, nullable=False),
    Column("tenant", Text),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("status", Integer, nullable=False),
    sqlite_autoincrement=True,
)
Index("audit_by_tenant", audit.c.tenant, audit.c.number)

_REFUSE = "audit entries are only ever added"
_TRIGGERS = {
    "sqlite": [
        f"CREATE TRIGGER audit_no_{verb.lower()} BEFORE {verb} ON audit BEGIN SELECT RAISE(ABORT, '{_REFUSE}'); END"
        for verb in ("UPDATE", "DELETE")
    ],
    "postgresql": [
        "CREATE OR REPLACE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{_REFUSE}'; END $$",
        "CREATE TRIGGER audit_no_change BEFORE UPDATE OR DELETE ON audit "
        "FOR EACH ROW EXECUTE FUNCTION refuse_audit_change()",
    ],
}


@event.listens_for(audit, "after_create")
def _protect(_table: Table, connection: Connection, **_more: object) -> None:
    for statement in _TRIGGERS.get(connection.dialect.name, ()):
        connection.exec_driver_sql(statement)
