"""Deliveries that wait for their targets: rows of the control store, in SQLite or PostgreSQL.

The data plane parks deliveries, takes them away when their target has them, and writes how each target is doing. The server
lists them and writes an operator's orders: resume, waive. Workers never open the store: what they need is in their order.
If the rows are lost with the store, the imports that wait for a target wait until someone waives it, and the target lacks
their rows until it is back-filled."""

import threading
import time
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import Any

import orjson
from pydantic import TypeAdapter
from sqlalchemy import Connection, and_, bindparam, delete, exists, func, select, tuple_, update
from sqlalchemy.sql.schema import Table

from millrace.model.names import new_id
from millrace.model.queues import Backlog, Member, QueueKey, QueueRecord, QueueState, Waiver
from millrace.store.engine import ControlStore, insert_new, upsert
from millrace.store.tables import parked, queues

Name = tuple[int, str]
Members = Mapping[str, Member]
# The columns of a key, in its order.
_KEY = ("kind", "tenant", "table_name", "target")


@dataclass(frozen=True, slots=True)
class ParkedRow:
    """One delivery. Its place in the queue and a digest of its chunks name it: parked again, it replaces itself. `size` are
    the bytes of its files, `item` is the delivery itself as JSON."""

    key: QueueKey
    place: int
    digest: str
    version: int
    size: int
    item: str


@dataclass(frozen=True, slots=True)
class ParkedTarget:
    """Since when a target takes nothing, why, how often it was tried, and when it is tried next, in seconds since 1970."""

    since: float
    reason: str
    tries: int
    next_try: float


class Queues:
    def __init__(self, store: ControlStore) -> None:
        self._store = store
        self.pinning = threading.Lock()
        """Held while files are pinned and parked, and while deliveries are taken away and their pins released: otherwise a
        delivery that is parked again could lose the pin that it shares with the one that is taken away."""
        self._pinning_own = threading.Lock()

    def pinning_of(self, key: QueueKey) -> threading.Lock:
        """The queues of the platform's own tables have a lock of their own. Under that one nobody opens a file of a table,
        so it is never held for long."""
        return self._pinning_own if key.is_own else self.pinning

    def get(self, key: QueueKey) -> QueueRecord | None:
        return next(iter(self._find(_GET, _bound(key))), None)

    def all(self, known: Mapping[QueueKey, QueueRecord] = MappingProxyType({})) -> list[QueueRecord]:
        """A queue that has not changed since it was known is not decoded again."""
        with self._store.read() as connection:
            rows = [(known.get(_key(row)), row) for row in connection.execute(_ALL)]
            return [before if before and before.changed_us == row.changed_us else _record(row) for before, row in rows]

    def of_table(self, tenant: str, table: str) -> list[QueueRecord]:
        of_table = queues.c.tenant == tenant, queues.c.table_name == table
        return self._find(select(queues).where(*of_table).order_by(*_columns(queues)))

    def of_tables(self, kind: str, tables: Collection[tuple[str, str]]) -> list[QueueRecord]:
        return self._find(_OF_TABLES, {"b_kind": kind, "b_tables": list(tables)})

    def _find(self, statement: Any, bound: dict[str, Any] | None = None) -> list[QueueRecord]:
        with self._store.read() as connection:
            return [_record(row) for row in connection.execute(statement, bound)]

    def with_parked(self) -> list[QueueRecord]:
        """The queues in which something waits."""
        return self._find(select(queues).where(tuple_(*_columns(queues)).in_(select(*_columns(parked)))))

    def names(self, key: QueueKey) -> set[Name]:
        """Of all deliveries in the queue."""
        with self._store.read() as connection:
            return {(row.place, row.digest) for row in connection.execute(_NAMES, _bound(key))}

    def waiting(self, key: QueueKey, known: Container[Name] = ()) -> tuple[list[Name], list[ParkedRow]]:
        """The names of all deliveries in the queue, in its order, and those that are not known yet."""
        bound = _bound(key)
        with self._store.read() as connection:
            names = [(row.place, row.digest) for row in connection.execute(_NAMES, bound)]
            unknown = next((place for place, digest in names if (place, digest) not in known), None)
            found = () if unknown is None else connection.execute(_ROWS_FROM, {**bound, "b_place": unknown})
            rows = [ParkedRow(key, row.place, row.digest, row.version, row.size, row.item) for row in found]
        return names, [row for row in rows if (row.place, row.digest) not in known]

    # What the data plane writes.

    def park(self, rows: Sequence[ParkedRow]) -> None:
        """All of them, in one transaction, or none. Durable when it returns."""
        if rows:
            with self._store.write() as connection:
                _touch(connection, {row.key for row in rows})
                upsert(connection, parked, [_parked_values(row) for row in rows])

    def finish(self, key: QueueKey, done: Sequence[Name] = (), state: QueueState | None = None) -> None:
        """Takes deliveries away, and writes how the target is doing, in one transaction."""
        bound = _bound(key)
        with self._store.write() as connection:
            if done:
                gone = [{**bound, "b_place": place, "b_digest": digest} for place, digest in done]
                connection.execute(_TAKE_AWAY, gone)
            changed = bound | _now() | ({} if state is None else asdict(state))
            connection.execute(_TOUCH if state is None else _SAVE_STATE, changed)

    def change_members(self, kind: str, tenant: str, table: str, change: Callable[[Members], Members]) -> Members:
        """The members of one kind after the change. A target that was removed and forgotten is not written again."""
        with self._store.write() as connection:
            found = connection.execute(_OF_TABLES.with_for_update(), {"b_kind": kind, "b_tables": [(tenant, table)]})
            rows = {row.target: _record(row).member for row in found}
            before = {target: member for target, member in rows.items() if member is not None}
            after = change(before)
            for target, member in after.items():
                if member != before.get(target) and (member.is_active or target in rows):
                    key = QueueKey(kind, tenant, table, target)
                    _touch(connection, [key])
                    _change(connection, key, member=_json(member))
        return after

    def take_resumes(self, keys: Collection[QueueKey]) -> set[QueueKey]:
        """Those of the queues that an operator wants to be tried now. Each order is taken once; others stay."""
        with self._store.read() as connection:
            asked = {_key(row) for row in connection.execute(_RESUMES)}.intersection(keys)
        if asked:
            with self._store.write() as connection:
                connection.execute(_TAKE_RESUME, [_bound(key) for key in sorted(asked)])
        return asked

    # What the server writes.

    def ask_to_resume(self, key: QueueKey) -> None:
        with self._store.write() as connection:
            _change(connection, key, resume_asked=True)

    def waive(self, key: QueueKey, below: int) -> None:
        with self._store.write() as connection:
            _touch(connection, [key])
            _change(connection, key, waived_below=below, waived_until=new_id("imp"))

    def announce(self, key: QueueKey, announced: Mapping[str, Any]) -> None:
        with self._store.write() as connection:
            _change(connection, key, announced=_json(announced))

    def forget(self, record: QueueRecord) -> bool:
        """Deletes the queue unless it has changed since, or something waits in it."""
        unchanged, waits = queues.c.changed_us == record.changed_us, exists().where(_is(parked))
        with self._store.write() as connection:
            gone = connection.execute(delete(queues).where(_is(queues), unchanged, ~waits), _bound(record.key))
            return gone.rowcount > 0

    def backlogs(self, tenant: str, table: str) -> dict[QueueKey, Backlog]:
        totals = func.count(), func.sum(parked.c.size), func.min(func.nullif(parked.c.place, 0))
        of_table = parked.c.tenant == tenant, parked.c.table_name == table
        wanted = select(*_columns(parked), *totals).where(*of_table).group_by(*_columns(parked))
        with self._store.read() as connection:
            return {_key(row): Backlog(row[-3], int(row[-2]), row[-1]) for row in connection.execute(wanted)}

    def backlog(self, key: QueueKey) -> Backlog:
        return self.backlogs(key.tenant, key.table).get(key, Backlog())

    def restore(self, record: QueueRecord, resume_asked: bool, rows: Sequence[ParkedRow]) -> None:
        """Writes a queue and what waits in it, from the files of an older home. Orders that are there already hold."""
        orders = {"waived_below": record.waiver.below, "waived_until": record.waiver.until}
        made = {**_key_values(record.key), **orders, "resume_asked": resume_asked, "changed_us": 0}
        known = {**asdict(record.state), "member": record.member and _json(record.member)}
        restored = update(queues).where(_is(queues), queues.c.member.is_(None))
        changed = restored.values(**known, announced=_json(record.announced), changed_us=bindparam("b_now"))
        with self._store.write() as connection:
            insert_new(connection, queues, [made])
            connection.execute(changed, _bound(record.key) | _now())
            insert_new(connection, parked, [_parked_values(row) for row in rows])


def parked_targets(connection: Connection, tenant: str, table: str) -> dict[str, ParkedTarget]:
    """The table's targets that take nothing at the moment."""
    of_table = queues.c.tenant == tenant, queues.c.table_name == table
    state = queues.c.parked_since, queues.c.reason, queues.c.tries, queues.c.next_try
    wanted = select(queues.c.target, *state).where(*of_table, queues.c.parked_since.is_not(None))
    return {
        row.target: ParkedTarget(row.parked_since, row.reason or "", row.tries, row.next_try)
        for row in connection.execute(wanted)
    }


def _columns(table: Table) -> tuple[Any, ...]:
    return tuple(table.c[name] for name in _KEY)


def _key(row: Any) -> QueueKey:
    return QueueKey(*(getattr(row, name) for name in _KEY))


def _key_values(key: QueueKey, prefix: str = "") -> dict[str, Any]:
    return {f"{prefix}{name}": part for name, part in zip(_KEY, key, strict=True)}


def _is(table: Table) -> Any:
    return and_(*(column == bindparam(f"b_{column.name}") for column in _columns(table)))


def _bound(key: QueueKey) -> dict[str, Any]:
    return _key_values(key, "b_")


def _now() -> dict[str, int]:
    return {"b_now": time.time_ns() // 1000}


# Built once: making a statement costs more than running it.
_STATE = tuple(field.name for field in fields(QueueState))
_ALL = select(queues)
_GET = _ALL.where(_is(queues))
_OF_TABLES = select(queues).where(
    queues.c.kind == bindparam("b_kind"),
    tuple_(queues.c.tenant, queues.c.table_name).in_(bindparam("b_tables", expanding=True)),
)
_NAMES = select(parked.c.place, parked.c.digest).where(_is(parked)).order_by(parked.c.place, parked.c.digest)
_ROWS_FROM = select(parked).where(_is(parked), parked.c.place >= bindparam("b_place"))
_TAKE_AWAY = delete(parked).where(
    _is(parked), parked.c.place == bindparam("b_place"), parked.c.digest == bindparam("b_digest")
)
_TOUCH = update(queues).where(_is(queues)).values(changed_us=bindparam("b_now"))
_SAVE_STATE = _TOUCH.values({name: bindparam(name) for name in _STATE})
_RESUMES = select(*_columns(queues)).where(queues.c.resume_asked)
_TAKE_RESUME = update(queues).where(_is(queues)).values(resume_asked=False)
_MEMBER: TypeAdapter[Member] = TypeAdapter(Member)


def _touch(connection: Connection, keys: Collection[QueueKey]) -> None:
    """Makes the queues that are not there yet, and marks all as changed.

    In one statement: another process may forget a queue between two. In one order: otherwise two writers could each wait
    for the other."""
    made = [{**_key_values(key), "changed_us": time.time_ns() // 1000} for key in sorted(keys)]
    upsert(connection, queues, made, replaced=("changed_us",))


def _change(connection: Connection, key: QueueKey, **values: Any) -> None:
    connection.execute(update(queues).where(_is(queues)).values(values), _bound(key))


def _parked_values(row: ParkedRow) -> dict[str, Any]:
    named = {"place": row.place, "digest": row.digest}
    return {**_key_values(row.key), **named, "version": row.version, "size": row.size, "item": row.item}


def _record(row: Any) -> QueueRecord:
    state = QueueState(*(getattr(row, name) for name in _STATE))
    member = None if row.member is None else _MEMBER.validate_json(row.member)
    announced = {} if row.announced is None else orjson.loads(row.announced)
    return QueueRecord(_key(row), state, member, Waiver(row.waived_below, row.waived_until), announced, row.changed_us)


def _json(value: object) -> str:
    return orjson.dumps(value).decode()
