"""PostgreSQL: COPY into a staging table and one guarded insert, so that the greatest version of each key stays.

As long as every key is new to the table, COPY goes straight into it. A schema per tenant. Deleted keys stay as tombstones in
a table beside, which readers need not know."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from millrace.model.columns import DELETED_COLUMN
from millrace.model.errors import MillraceError
from millrace.model.evolution import path
from millrace.model.sinks import Abilities, Fault, SinkFailed, SinkTarget
from millrace.model.table import Definition
from millrace.sink.addresses import permitted
from millrace.sink.arrow_text import to_csv
from millrace.sink.foreign import Definitions, Rows, Work
from millrace.sink.key_order import in_key_order
from millrace.sink.postgres_ddl import CHUNKS, META, OWN, alter, create, drop, identifier, physical, tombstones

STAGING = "_millrace_staging"
CONNECT_SECONDS = 10
STATEMENT_MS = 600_000
# Two platforms, or two workers, preparing the same table take turns.
LOCK = 0x6D696C6C


class PostgresSink:
    kind: ClassVar[str] = "postgres"
    abilities: ClassVar[Abilities] = Abilities(
        atomic_publish=True, nested_types=True, exactly_once_append=True, survives="power"
    )
    settings_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "additionalProperties": False,
        "required": ["host", "database", "user"],
        "properties": {
            "host": {"type": "string", "format": "hostname", "description": "The server's name or address."},
            "port": {"type": "integer", "default": 5432, "description": "Its port."},
            "database": {"type": "string", "description": "The database; each tenant gets a schema of its own in it."},
            "user": {"type": "string", "description": "Who writes; needs CREATE on the database."},
            "password": {
                "type": "string",
                "format": "secret",
                "description": "A reference to the secret: env:…, file:… or k8s:….",
            },
            "sslmode": {
                "type": "string",
                "enum": ["disable", "prefer", "require", "verify-ca", "verify-full"],
                "default": "prefer",
                "description": "As libpq knows it.",
            },
        },
    }

    def __init__(self, target: SinkTarget, secret: Callable[[str], str]) -> None:
        given = target.settings
        self._place: dict[str, Any] = {
            "port": int(given.get("port", 5432)),
            "dbname": str(given["database"]),
            "user": str(given["user"]),
            "sslmode": str(given.get("sslmode", "prefer")),
            "connect_timeout": CONNECT_SECONDS,
            "options": f"-c statement_timeout={STATEMENT_MS} -c timezone=UTC",
        }
        self._host = str(given["host"])
        if "password" in given:
            self._place["password"] = secret(str(given["password"]))
        self._connection: psycopg.Connection[Any] | None = None
        self._prepared: dict[tuple[str, str], str] = {}
        # Tables in which a key came again: there, a row is looked for before it is written.
        self._met_twice: set[tuple[str, str]] = set()

    @staticmethod
    def plan(before: Definition | None, after: Definition) -> list[str]:
        known = {one.fingerprint: one for one in (before, after) if one is not None}
        made = _statements(physical(after.tenant), before, after, known.__getitem__)
        return [statement.as_string(None) for statement in made]

    def check(self) -> None:
        with self._connected().transaction(force_rollback=True):
            self._run(sql.SQL("CREATE SCHEMA _millrace_check"))
            self._run(sql.SQL("CREATE TABLE _millrace_check.t (k bigint PRIMARY KEY)"))
            self._run(sql.SQL("INSERT INTO _millrace_check.t VALUES (1) ON CONFLICT (k) DO NOTHING"))

    def prepare(self, definition: Definition, definitions: Definitions) -> None:
        known = definition.tenant, definition.table.name
        if self._prepared.get(known) == definition.fingerprint:
            return
        schema, table = physical(definition.tenant), definition.table.name
        with self._connected().transaction():
            self._run(sql.SQL("SELECT pg_advisory_xact_lock({})").format(sql.Literal(LOCK)))
            self._make_schema(schema)
            found = self._ask(
                sql.SQL("SELECT definition FROM {} WHERE name = %s").format(sql.Identifier(schema, META)), [table]
            )
            before = definitions(found[0][0]) if found else None
            for statement in _statements(schema, before, definition, definitions):
                self._run(statement)
            if before is None or _age(before) < _age(definition):
                self._run(
                    sql.SQL(
                        "INSERT INTO {} (name, definition, floor) VALUES (%s, %s, %s) ON CONFLICT (name) "
                        "DO UPDATE SET definition = excluded.definition, floor = greatest({}.floor, excluded.floor)"
                    ).format(sql.Identifier(schema, META), sql.Identifier(META)),
                    [table, definition.fingerprint, definition.floor],
                )
        self._prepared[known] = definition.fingerprint

    def _make_schema(self, schema: str) -> None:
        self._run(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
        self._run(
            sql.SQL(
                "CREATE TABLE IF NOT EXISTS {} (name text PRIMARY KEY, definition text NOT NULL, floor bigint NOT NULL)"
            ).format(sql.Identifier(schema, META))
        )
        self._run(
            sql.SQL("CREATE TABLE IF NOT EXISTS {} (name text, chunk text, PRIMARY KEY (name, chunk))").format(
                sql.Identifier(schema, CHUNKS)
            )
        )

    def write(self, work: Work) -> None:
        schema, table = physical(work.definition.tenant), work.definition.table
        with self._connected().transaction():
            floor = self._raise_floor(schema, table.name, work.floor)
            for rows in work.rows:
                if table.primary_key:
                    self._upsert(schema, work.definition, rows, floor)
                else:
                    self._append(schema, work.definition, rows, floor)

    def _raise_floor(self, schema: str, table: str, floor: int) -> int:
        """The table's floor from now on; what lies at or below a raised one goes."""
        meta = sql.Identifier(schema, META)
        known: int = self._ask(sql.SQL("SELECT floor FROM {} WHERE name = %s FOR UPDATE").format(meta), [table])[0][0]
        if floor > known:
            self._run(sql.SQL("UPDATE {} SET floor = %s WHERE name = %s").format(meta), [floor, table])
            self._run(
                sql.SQL("DELETE FROM {} WHERE _version <= %s").format(sql.Identifier(schema, physical(table))), [floor]
            )
        return max(floor, known)

    def _upsert(self, schema: str, definition: Definition, rows: Rows, floor: int) -> None:
        names = [column.name for column in definition.columns] + [own for own, _ in OWN]
        table = sql.Identifier(schema, physical(definition.table.name))
        graves = sql.Identifier(schema, tombstones(definition.table.name))
        deleted: list[pa.RecordBatch] = []
        if not self._copy_new(schema, definition, names, rows, floor, deleted):
            deleted.clear()
            self._merge(table, graves, definition.table.primary_key, names, _split(rows, floor, deleted))
        if deleted:
            self._delete(table, graves, definition.table.primary_key, deleted)

    def _copy_new(
        self,
        schema: str,
        definition: Definition,
        names: list[str],
        rows: Rows,
        floor: int,
        deleted: list[pa.RecordBatch],
    ) -> bool:
        """Straight into the table, as long as it has met no key twice and nothing was deleted from it. False if it has now:
        then nothing happened."""
        name, key = definition.table.name, definition.table.primary_key
        graves = sql.Identifier(schema, tombstones(name))
        if (schema, name) in self._met_twice or self._ask(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(graves), []):
            return False
        try:
            with self._connected().transaction():
                fresh = in_key_order(_split(rows, floor, deleted), key)
                self._copy(sql.Identifier(schema, physical(name)), names, fresh)
            return True
        except psycopg.errors.UniqueViolation:
            self._met_twice.add((schema, name))
            return False

    def _merge(
        self,
        table: sql.Identifier,
        graves: sql.Identifier,
        key: Sequence[str],
        names: list[str],
        batches: Iterator[pa.RecordBatch],
    ) -> None:
        self._stage(table, names, in_key_order(batches, key))
        changed = sql.SQL(", ").join(
            [sql.SQL("{0} = excluded.{0}").format(identifier(name)) for name in names if name not in key]
        )
        self._run(
            sql.SQL(
                "INSERT INTO {table} AS there ({columns}) SELECT {columns} FROM {staging} AS new WHERE NOT EXISTS "
                "(SELECT 1 FROM {graves} AS gone WHERE {same} AND gone._version >= new._version) "
                "ON CONFLICT ({keys}) DO UPDATE SET {changed} WHERE excluded._version > there._version"
            ).format(
                table=table,
                columns=_listed(names),
                staging=sql.Identifier(STAGING),
                graves=graves,
                same=_same(key, "gone", "new"),
                keys=_listed(key),
                changed=changed,
            )
        )
        self._run(sql.SQL("DROP TABLE {}").format(sql.Identifier(STAGING)))

    def _delete(
        self, table: sql.Identifier, graves: sql.Identifier, key: Sequence[str], deletes: list[pa.RecordBatch]
    ) -> None:
        names = [*key, "_version"]
        self._stage(graves, names, iter(deletes))
        staging, keys = sql.Identifier(STAGING), _listed(key)
        self._run(
            sql.SQL("DELETE FROM {} AS there USING {} AS gone WHERE {} AND there._version <= gone._version").format(
                table, staging, _same(key, "there", "gone")
            )
        )
        self._run(
            sql.SQL(
                "INSERT INTO {graves} AS there ({columns}) SELECT {columns} FROM {staging} ON CONFLICT ({keys}) "
                "DO UPDATE SET _version = excluded._version WHERE excluded._version > there._version"
            ).format(graves=graves, columns=_listed(names), staging=staging, keys=keys)
        )
        self._run(sql.SQL("DROP TABLE {}").format(staging))

    def _append(self, schema: str, definition: Definition, rows: Rows, floor: int) -> None:
        """Each chunk once: the chunks that are there are recorded with their rows."""
        chunks, name = sql.Identifier(schema, CHUNKS), definition.table.name
        question = sql.SQL("SELECT chunk FROM {} WHERE name = %s AND chunk = ANY(%s)").format(chunks)
        known = {row[0] for row in self._ask(question, [name, list(rows.chunks)])}
        new = [version for chunk, version in zip(rows.chunks, rows.versions, strict=True) if chunk not in known]
        if not new:
            return
        names = [column.name for column in definition.columns] + [own for own, _ in OWN]
        wanted = pa.array(new, pa.int64())
        batches = (_upserts(batch, floor) for batch in rows.open())
        fresh = (batch.filter(pc.is_in(batch["_version"], wanted)) for batch in batches)
        self._copy(sql.Identifier(schema, physical(name)), names, fresh)
        recorded = sql.SQL("INSERT INTO {} (name, chunk) SELECT %s, unnest(%s::text[]) ON CONFLICT DO NOTHING")
        self._run(recorded.format(chunks), [name, list(rows.chunks)])

    def _stage(self, like: sql.Identifier, names: Sequence[str], batches: Iterator[pa.RecordBatch]) -> None:
        self._run(
            sql.SQL("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WHERE false").format(
                sql.Identifier(STAGING), _listed(names), like
            )
        )
        self._copy(sql.Identifier(STAGING), names, batches)

    def _copy(self, table: sql.Identifier, names: Sequence[str], batches: Iterator[pa.RecordBatch]) -> None:
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(table, _listed(names))
        with self._connected().cursor() as cursor, cursor.copy(statement) as copy:
            for batch in batches:
                if batch.num_rows:
                    copy.write(to_csv(batch.select(list(names))))

    def classify(self, error: BaseException) -> Fault:
        match error:
            case SinkFailed():
                return error.fault
            case MillraceError():
                return Fault.SINK
            case psycopg.errors.DataError() | psycopg.errors.IntegrityError():
                return Fault.ROW
            case psycopg.OperationalError() | psycopg.InterfaceError() | OSError():
                return Fault.SINK
            case psycopg.errors.ReadOnlySqlTransaction() | psycopg.errors.InvalidAuthorizationSpecification():
                return Fault.SINK
        return Fault.TABLE

    def read_back(self, definition: Definition) -> pa.Table:
        names = [column.name for column in definition.columns] + ["_version"]
        table = sql.Identifier(physical(definition.tenant), physical(definition.table.name))
        nested = {column.name for column in definition.columns if pa.types.is_nested(column.arrow)}
        shown = [sql.SQL("{}::text" if name in nested else "{}").format(identifier(name)) for name in names]
        rows = self._ask(sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(shown), table), [])
        return pa.table({name: [row[place] for row in rows] for place, name in enumerate(names)})

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> "psycopg.Connection[Any]":
        if self._connection is None or self._connection.closed:
            self._prepared.clear()
            self._connection = psycopg.connect(**self._place, **self._judged(), autocommit=True)
        return self._connection

    def _judged(self) -> dict[str, Any]:
        """The very addresses that were judged, under the name that certificates are checked against."""
        addresses = permitted(self._host)
        return {"host": ",".join([self._host] * len(addresses)), "hostaddr": ",".join(addresses)}

    def _run(self, statement: sql.SQL | sql.Composed, values: Sequence[Any] | None = None) -> None:
        self._connected().execute(statement, values)

    def _ask(self, statement: sql.SQL | sql.Composed, values: Sequence[Any]) -> list[Any]:
        found: list[Any] = self._connected().execute(statement, values).fetchall()
        return found


def _statements(
    schema: str, before: Definition | None, after: Definition, definitions: Definitions
) -> Sequence[sql.Composed]:
    if before is None:
        return create(schema, after)
    if _age(before) >= _age(after):
        return []
    if before.generation < after.generation:
        return [*drop(schema, after.table.name), *create(schema, after)]
    return alter(schema, after, path(definitions, before, after))


def _age(definition: Definition) -> tuple[int, int]:
    return definition.generation, definition.revision


def _upserts(batch: pa.RecordBatch, floor: int) -> pa.RecordBatch:
    return batch.filter(pc.and_(pc.invert(batch[DELETED_COLUMN]), pc.greater(batch["_version"], floor)))


def _split(rows: Rows, floor: int, deleted: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows that are to be there; those that are to go are put aside on the way."""
    for batch in rows.open():
        gone = batch.filter(pc.and_(batch[DELETED_COLUMN], pc.greater(batch["_version"], floor)))
        if gone.num_rows:
            deleted.append(gone)
        yield _upserts(batch, floor)


def _listed(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join([identifier(name) for name in names])


def _same(key: Sequence[str], left: str, right: str) -> sql.Composed:
    pairs = [(sql.Identifier(left, physical(name)), sql.Identifier(right, physical(name))) for name in key]
    return sql.SQL(" AND ").join([sql.SQL("{} = {}").format(*pair) for pair in pairs])
