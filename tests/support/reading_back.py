"""What a reader of a sink's target sees: declared columns and `_version`. Connectors only write; this asks their targets."""

from collections.abc import Callable
from typing import Any
from urllib.request import Request, urlopen

import orjson
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from cassandra.util import Date
from psycopg import sql

from millrace.arrow.types import arrow_type
from millrace.lake.read import scan
from millrace.lake.target import Lineage
from millrace.model.columns import DELETED_COLUMN, Column
from millrace.model.defaults import stored_default
from millrace.model.table import Definition
from millrace.sink.bigquery.ddl import quoted as bigquery_quoted
from millrace.sink.bigquery.ddl import type_of as bigquery_type
from millrace.sink.bigquery.sink import BigQuerySink
from millrace.sink.cassandra.core_sink import CoreStoreSink
from millrace.sink.cassandra.ddl import place as cassandra_place
from millrace.sink.cassandra.ddl import quoted as cassandra_quoted
from millrace.sink.cassandra.sink import CassandraSink
from millrace.sink.connector import Connector
from millrace.sink.delta.remote import DeltaRemoteSink
from millrace.sink.files.sink import FilesSink
from millrace.sink.jdbc import mysql
from millrace.sink.jdbc.link import committed
from millrace.sink.jdbc.sink import JdbcSink
from millrace.sink.kafka.records import avro_name, decoded
from millrace.sink.kafka.sink import KafkaSink
from millrace.sink.postgres.ddl import identifier, physical
from millrace.sink.postgres.sink import PostgresSink
from millrace.sink.webhook import WebhookSink


def read_back(sink: Connector, definition: Definition) -> pa.Table:
    return _READERS[type(sink)](sink, definition)


def _names(definition: Definition) -> list[str]:
    return [column.name for column in definition.columns] + ["_version"]


def _from_postgres(sink: PostgresSink, definition: Definition) -> pa.Table:
    table = sql.Identifier(physical(definition.tenant), physical(definition.table.name))
    nested = {column.name for column in definition.columns if pa.types.is_nested(arrow_type(column))}
    names = _names(definition)
    shown = [sql.SQL("{}::text" if name in nested else "{}").format(identifier(name)) for name in names]
    question = sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(shown), table)
    rows = sink._connected().execute(question).fetchall()
    return pa.table({name: [row[place] for row in rows] for place, name in enumerate(names)})


def _from_cassandra(sink: CassandraSink, definition: Definition) -> pa.Table:
    names = _names(definition)
    listed = ", ".join(map(cassandra_quoted, names))
    found = list(sink._connected().execute(f"SELECT {listed} FROM {cassandra_place(definition)}"))
    plain = [[cell.date() if isinstance(cell, Date) else cell for cell in row] for row in found]
    return pa.table({name: [row[at] for row in plain] for at, name in enumerate(names)})


def _from_mysql(sink: JdbcSink, definition: Definition) -> pa.Table:
    """A column beside the declared ones says which numbers were not finite."""
    link, names = sink._connected(), [*_names(definition), mysql.NOT_FINITE]
    with committed(link):
        place = mysql.TablePlace(sink._base, definition).rows
        rows = link.ask(f"SELECT {mysql.listed(names)} FROM {place}")
    columns = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    for at, marks in enumerate(columns.pop(mysql.NOT_FINITE)):
        for name, text in orjson.loads(marks).items() if marks else ():
            columns[name][at] = float(text)
    for column in definition.columns:
        if pa.types.is_boolean(arrow_type(column)):
            columns[column.name] = [None if cell is None else bool(cell) for cell in columns[column.name]]
    return pa.table(columns)


def _from_bigquery(sink: BigQuerySink, definition: Definition) -> pa.Table:
    shown = [
        f"TO_JSON_STRING({name})" if bigquery_type(arrow_type(column)) == "JSON" else name
        for column in definition.columns
        for name in [bigquery_quoted(column.name)]
    ]
    found = sink._run(f"SELECT {', '.join([*shown, '`_version`'])} FROM `{sink._view(definition)}`")
    rows = [[None if cell == "null" else cell for cell in row.values()] for row in found]
    return pa.table({name: [row[place] for row in rows] for place, name in enumerate(_names(definition))})


def _from_delta(sink: DeltaRemoteSink, definition: Definition) -> pa.Table:
    table = sink._table(definition)
    return scan(table.store, table.snapshot(), _names(definition))


def _from_files(sink: FilesSink, definition: Definition) -> pa.Table:
    """As a reader who reads the changelog as intended."""
    ledger, lineage, shown = sink._ledger(definition), Lineage(sink._definitions), _names(definition)
    found = [
        sink._schema(definition).empty_table().select(shown).append_column(DELETED_COLUMN, pa.array([], pa.bool_()))
    ]
    for part in [part for import_id in ledger.imports() for part in ledger.whole_parts(import_id)]:
        written, rows = sink._definitions(part.definition), sink._read(ledger, part)
        marks = rows[DELETED_COLUMN]
        if written.fingerprint != definition.fingerprint:
            rows = lineage.reshape(written, definition).rows(rows.drop_columns([DELETED_COLUMN]))
            rows = rows.append_column(DELETED_COLUMN, marks)
        found.append(rows.select([*shown, DELETED_COLUMN]))
    table = pa.concat_tables(found, promote_options="permissive")
    return _latest(table, definition.table.primary_key).select(shown)


def _latest(table: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """The row with the greatest version of each key, unless it is a delete."""
    if not key:
        return table
    numbered = pl.from_arrow(table.select([*key, "_version"])).with_row_index("_place")  # type: ignore[union-attr]
    last = numbered.sort("_version").unique(list(key), keep="last")["_place"].sort()
    chosen = table.take(last.to_arrow())
    return chosen.filter(pc.invert(chosen[DELETED_COLUMN]))


def _from_kafka(sink: KafkaSink, definition: Definition) -> pa.Table:
    line = sink._line(definition)
    journal = line._journal
    journal.catch_up()
    records = list(line._cluster.read(line._topic))
    if definition.table.primary_key:
        records = list({record.key: record for record in records}.values())
    rows = [decoded(record.value, journal.schemas) for record in records if record.value is not None]
    floor = journal.state.floor if journal.state else 0
    return _as_read([row for row in rows if row["_version"] > floor], definition)


def _from_receiver(sink: WebhookSink, definition: Definition) -> pa.Table:
    """The receiver of these tests shows its rows beside the place where it takes them."""
    headers = {"millrace-table": f"{definition.tenant}/{definition.table.name}"}
    shown = Request(f"http://{sink._target.authority}/shown", headers=headers)
    with urlopen(shown, timeout=10) as answer:
        return _as_read([orjson.loads(line) for line in answer], definition)


def _as_read(rows: list[dict[str, Any]], definition: Definition) -> pa.Table:
    """Rows as a reader of the definition resolves them: former names are accepted, missing values get the default."""
    columns = {column.name: [_cell(row, column) for row in rows] for column in definition.columns}
    return pa.table({**columns, "_version": pa.array([row["_version"] for row in rows], pa.int64())})


def _cell(row: dict[str, Any], column: Column) -> Any:
    for name in (column.name, *column.aliases):
        for spelled in (name, avro_name(name)):
            if spelled in row:
                return _typed(row[spelled], arrow_type(column))
    return stored_default(column)


def _typed(cell: Any, kind: pa.DataType) -> Any:
    if isinstance(cell, str) and pa.types.is_binary(kind):
        return bytes.fromhex(cell)
    return float(cell) if isinstance(cell, str) and pa.types.is_floating(kind) else cell


_READERS: dict[type, Callable[[Any, Definition], pa.Table]] = {
    PostgresSink: _from_postgres,
    CassandraSink: _from_cassandra,
    CoreStoreSink: _from_cassandra,
    JdbcSink: _from_mysql,
    BigQuerySink: _from_bigquery,
    DeltaRemoteSink: _from_delta,
    FilesSink: _from_files,
    KafkaSink: _from_kafka,
    WebhookSink: _from_receiver,
}
