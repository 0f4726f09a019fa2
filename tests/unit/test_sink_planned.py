"""What a change of a table would do in its foreign sinks is shown before it is done."""

from typing import Any

from millrace.declare.table import parse_table
from millrace.model.table import Definition, define
from millrace.sink.planned import sink_plans

POSTGRES = {"kind": "postgres", "name": "warehouse", "host": "h", "database": "d", "user": "u"}
CASSANDRA = {"kind": "cassandra", "name": "wide", "hosts": ["h"]}
ID = {"name": "id", "type": "long"}


def table(sinks: list[Any], *fields: Any, revision: int = 1, previous: str | None = None, **lineage: Any) -> Definition:
    schema = {"type": "record", "name": "notes", "fields": [ID, *fields]}
    return define(
        "acme",
        parse_table({"schema": schema, "primary_key": ["id"], "sinks": sinks}),
        revision,
        previous=previous,
        **lineage,
    )


def test_a_new_table_is_made_in_each() -> None:
    lines = sink_plans(None, table(["delta", POSTGRES, CASSANDRA]))
    assert [line.partition(" (")[0] for line in lines] == [
        'warehouse: CREATE TABLE "acme"."notes"',
        'warehouse: CREATE TABLE "acme"."notes__deleted"',
        lines[2].partition(" (")[0],
    ]
    assert lines[2].startswith("wide: CREATE TABLE IF NOT EXISTS")


def test_a_change_shows_the_statements_of_each() -> None:
    first = table([POSTGRES, CASSANDRA], {"name": "old", "type": ["null", "string"]})
    changed = [
        {"name": "new", "type": ["null", "string"], "aliases": ["old"]},
        {"name": "age", "type": ["null", "int"]},
    ]
    lines = sink_plans(first, table([POSTGRES, CASSANDRA], *changed, revision=2, previous=first.fingerprint))
    assert 'warehouse: ALTER TABLE "acme"."notes" RENAME COLUMN "old" TO "new"' in lines
    assert 'warehouse: ALTER TABLE "acme"."notes" ADD COLUMN "age" integer' in lines
    assert any(line.startswith("wide: ALTER TABLE") and line.endswith('ADD "age" bigint') for line in lines)


def test_who_comes_is_filled_and_who_goes_is_drained() -> None:
    first = table(["delta", CASSANDRA])
    lines = sink_plans(first, table(["delta", POSTGRES], revision=2, previous=first.fingerprint))
    assert "warehouse: filled with the rows that are there, from the log or from Delta" in lines
    assert "wide: drained, then left as it is" in lines
