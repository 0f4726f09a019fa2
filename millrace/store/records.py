"""Entities to rows and back: tenants, tables, imports, positions."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, bindparam, insert, select, update

from millrace.model.errors import Clash, Missing
from millrace.model.imports import TERMINAL, Counts, Import
from millrace.store import tables as t
from millrace.store.engine import ControlStore

T = TypeVar("T")
# Well below what a statement may hold in any store.
MOST_AT_ONCE = 500

_IMPORT_FIELDS = tuple(one.name for one in fields(Import))
_IMPORT_COLUMNS = tuple(column.name for column in t.imports.columns if column.name != "touched_us")


def import_row(imp: Import, touched_us: int) -> dict[str, Any]:
    row = {name: getattr(imp, name) for name in _IMPORT_FIELDS}
    row["table_name"] = row.pop("table")
    return {**row, "sinks": list(imp.sinks), "counts": asdict(imp.counts), "touched_us": touched_us}


def to_import(row: Mapping[Any, Any]) -> Import:
    """An import from a row that holds at least its columns."""
    values = {name: row[name] for name in _IMPORT_COLUMNS}
    table = values.pop("table_name")
    return Import(**{**values, "table": table, "sinks": tuple(values["sinks"]), "counts": Counts(**values["counts"])})


_BY_ID = select(t.imports).where(t.imports.c.id == bindparam("import_id"))
_BY_IDS = select(t.imports).where(t.imports.c.id.in_(bindparam("import_ids", expanding=True)))
_BY_KEY = select(t.imports).where(
    t.imports.c.tenant == bindparam("of_tenant"), t.imports.c.idempotency_key == bindparam("key")
)


def find_import(connection: Connection, import_id: str) -> Import | None:
    row = connection.execute(_BY_ID, {"import_id": import_id}).first()
    return None if row is None else to_import(row._mapping)


def known_import(store: ControlStore, import_id: str) -> Import:
    with store.read() as connection:
        imp = find_import(connection, import_id)
    if imp is None:
        raise Missing(f"There is no import {import_id}.", code="no_import")
    return imp


def find_imports(connection: Connection, import_ids: Iterable[str]) -> Iterator[Import]:
    """Those of them that are there."""
    for some in batched(import_ids, MOST_AT_ONCE):
        rows = connection.execute(_BY_IDS, {"import_ids": some})
        yield from (to_import(row._mapping) for row in rows)


def batched(names: Iterable[T], most: int) -> Iterator[list[T]]:
    left = iter(names)
    while some := list(islice(left, most)):
        yield some


def find_by_key(connection: Connection, tenant: str, key: str) -> Import | None:
    row = connection.execute(_BY_KEY, {"of_tenant": tenant, "key": key}).first()
    return None if row is None else to_import(row._mapping)


def find_open_imports(connection: Connection, tenant: str, table: str) -> list[Import]:
    where = (t.imports.c.tenant == tenant, t.imports.c.table_name == table, t.imports.c.state.not_in(TERMINAL))
    return [to_import(row._mapping) for row in connection.execute(select(t.imports).where(*where))]


def positions(connection: Connection, log: str) -> dict[int, int]:
    rows = connection.execute(
        select(t.positions.c.partition, t.positions.c.next_offset).where(t.positions.c.log == log)
    )
    return {row.partition: row.next_offset for row in rows}


_ADVANCE = (
    update(t.positions)
    .where(
        t.positions.c.log == bindparam("of_log"),
        t.positions.c.partition == bindparam("of_partition"),
        t.positions.c.next_offset == bindparam("before"),
    )
    .values(next_offset=bindparam("after"))
)


def advance(connection: Connection, log: str, before: dict[int, int], after: dict[int, int]) -> None:
    """Moves the log's positions, unless another process has done so meanwhile: then this transaction must not stay.

    First in its transaction: the rows are locked before anything else is, so that a reader that was replaced waits or stops
    here, and does none of the work."""
    for partition, offset in sorted(after.items()):
        if partition not in before:
            connection.execute(insert(t.positions).values(log=log, partition=partition, next_offset=offset))
            continue
        move = {"of_log": log, "of_partition": partition, "before": before[partition], "after": offset}
        moved = connection.execute(_ADVANCE, move)
        if moved.rowcount != 1:
            raise Clash(f"Another process reads partition {partition} of {log}.", code="second_reader")


def is_purged(connection: Connection, tenant: str, table: str) -> bool:
    """Whether the table was dropped, and can no longer be restored."""
    wanted = select(t.tables.c.is_purged).where(t.tables.c.tenant == tenant, t.tables.c.name == table)
    return bool(connection.execute(wanted).scalar())
