"""Brings a tenant's database and its tables to a definition, whatever definition they had before.

MySQL cannot roll DDL back. So the comment of each table says which definition it has, or which one it is changing to and how
many steps are done. The statement that does a step also writes the comment."""

from collections.abc import Callable
from dataclasses import dataclass

from millrace.model.evolution import path
from millrace.model.sinks import Fault, SinkFailed
from millrace.model.table import Definition
from millrace.sink.connector import Definitions
from millrace.sink.jdbc import mysql
from millrace.sink.jdbc.link import Link

MARK = "millrace"


def shape(link: Link, place: mysql.TablePlace, definition: Definition, definitions: Definitions) -> None:
    _make_database(link, place)
    _Shaped(link, place, place.name, mysql.stored_columns, definitions).bring(definition)
    if definition.table.primary_key:
        graves = mysql.tombstones(definition.table.name)
        _Shaped(link, place, graves, mysql.key_columns, definitions).bring(definition)


def _make_database(link: Link, place: mysql.TablePlace) -> None:
    collation = mysql.collation(str(link.ask("SELECT VERSION()")[0][0]))
    link.run(f"CREATE DATABASE IF NOT EXISTS {mysql.quoted(place.database)} {collation}")
    link.run(f"CREATE TABLE IF NOT EXISTS {place.meta} (name VARCHAR(64) PRIMARY KEY, floor BIGINT NOT NULL)")
    link.run(
        f"CREATE TABLE IF NOT EXISTS {place.chunks} (name VARCHAR(64), chunk VARCHAR(255), PRIMARY KEY (name, chunk))"
    )


@dataclass(frozen=True, slots=True)
class _Shaped:
    """One table. `columns_of` says which columns it has under a definition."""

    link: Link
    place: mysql.TablePlace
    name: str
    columns_of: Callable[[Definition], dict[str, str]]
    definitions: Definitions

    def bring(self, definition: Definition) -> None:
        """To the definition, from the state that the table's comment names."""
        table = self.place.of(self.name)
        found = self.link.ask(
            "SELECT table_comment FROM information_schema.tables WHERE "
            f"table_schema = {mysql.literal(self.place.database)} AND table_name = {mysql.literal(self.name)}"
        )
        if found:
            before, goal, done = _progress(str(found[0][0]), self.name, self.definitions)
            if goal is not None:
                self._alter(before, goal, done)
                before = goal
            if before.generation == definition.generation and before.revision < definition.revision:
                self._alter(before, definition)
            if before.generation >= definition.generation:
                return
            self.link.run(f"DROP TABLE {table}")
        comment = f"{MARK} {definition.fingerprint}"
        self.link.run(mysql.create_table(table, self.columns_of(definition), definition.table.primary_key, comment))

    def _alter(self, before: Definition, after: Definition, done: int = 0) -> None:
        table, columns = self.place.of(self.name), self.columns_of(after)
        for at, change in enumerate(path(self.definitions, before, after)):
            clause = mysql.alteration(change, after, columns) if at >= done else None
            if clause is not None:
                comment = f"{MARK} {before.fingerprint} {after.fingerprint} {at + 1}"
                self.link.run(f"ALTER TABLE {table} {clause}, COMMENT = {mysql.literal(comment)}")
        self.link.run(f"ALTER TABLE {table} COMMENT = {mysql.literal(f'{MARK} {after.fingerprint}')}")


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
