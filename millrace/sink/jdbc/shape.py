"""Brings a tenant's database and its tables to a definition, whatever definition they had before.

MySQL cannot roll DDL back. So the comment of each table says which definition it has, or which one it is changing to and how
many steps are done. The statement that does a step also writes the comment."""

from collections.abc import Callable, Sequence

from millrace.model.changes import Change
from millrace.model.evolution import path
from millrace.model.sinks import Fault, SinkFailed
from millrace.model.table import Definition
from millrace.sink.connector import Definitions
from millrace.sink.jdbc import mysql
from millrace.sink.jdbc.link import Link

MARK = "millrace"


def shape(link: Link, place: mysql.TablePlace, definition: Definition, definitions: Definitions) -> None:
    _make_database(link, place)
    _bring(link, place, place.name, mysql.stored_columns, definition, definitions)
    if definition.table.primary_key:
        graves = mysql.tombstones(definition.table.name)
        _bring(link, place, graves, mysql.key_columns, definition, definitions)


def _make_database(link: Link, place: mysql.TablePlace) -> None:
    collation = mysql.collation(str(link.ask("SELECT VERSION()")[0][0]))
    link.run(f"CREATE DATABASE IF NOT EXISTS {mysql.quoted(place.database)} {collation}")
    link.run(f"CREATE TABLE IF NOT EXISTS {place.meta} (name VARCHAR(64) PRIMARY KEY, floor BIGINT NOT NULL)")
    link.run(
        f"CREATE TABLE IF NOT EXISTS {place.chunks} (name VARCHAR(64), chunk VARCHAR(255), PRIMARY KEY (name, chunk))"
    )


def _bring(
    link: Link,
    place: mysql.TablePlace,
    name: str,
    columns_of: Callable[[Definition], dict[str, str]],
    definition: Definition,
    definitions: Definitions,
) -> None:
    """Brings one table to the definition, from the state that its comment names."""
    table = place.of(name)
    found = link.ask(
        "SELECT table_comment FROM information_schema.tables WHERE "
        f"table_schema = {mysql.literal(place.database)} AND table_name = {mysql.literal(name)}"
    )
    if found:
        before, goal, done = _progress(str(found[0][0]), name, definitions)
        if goal is not None:
            _alter(link, table, before, goal, columns_of, definitions, done)
            before = goal
        if before.generation == definition.generation and before.revision < definition.revision:
            _alter(link, table, before, definition, columns_of, definitions)
        if before.generation >= definition.generation:
            return
        link.run(f"DROP TABLE {table}")
    comment = f"{MARK} {definition.fingerprint}"
    link.run(mysql.create_table(table, columns_of(definition), definition.table.primary_key, comment))


def _alter(
    link: Link,
    table: str,
    before: Definition,
    after: Definition,
    columns_of: Callable[[Definition], dict[str, str]],
    definitions: Definitions,
    done: int = 0,
) -> None:
    steps: Sequence[Change] = path(definitions, before, after)
    for at, change in enumerate(steps):
        clause = mysql.alteration(change, after, columns_of(after)) if at >= done else None
        if clause is not None:
            comment = f"{MARK} {before.fingerprint} {after.fingerprint} {at + 1}"
            link.run(f"ALTER TABLE {table} {clause}, COMMENT = {mysql.literal(comment)}")
    link.run(f"ALTER TABLE {table} COMMENT = {mysql.literal(f'{MARK} {after.fingerprint}')}")


def _progress(comment: str, name: str, definitions: Definitions) -> tuple[Definition, Definition | None, int]:
    """What the table was, what it is becoming, and how many steps of that are done."""
    match comment.split():
        case [mark, fingerprint] if mark == MARK:
            return definitions(fingerprint), None, 0
        case [mark, before, after, done] if mark == MARK:
            return definitions(before), definitions(after), int(done)
    raise SinkFailed(
        f"There is a table {name!r} that Millrace did not make.",
        Fault.TABLE,
        remedy="Rename it, or name another database.",
    )
