"""Who gets what of a table follows from its definitions alone: who came, who went, where each is now."""

from pathlib import Path
from typing import Any

import pytest

from millrace.declare.table import parse_table
from millrace.deliver.roster import Roster
from millrace.exchange.home import Home
from millrace.model.queues import QueueKey
from millrace.model.table import Definition, define
from millrace.store.engine import ControlStore
from millrace.store.erasing import erase_rows
from tests.support.queues import queues_of


def sink(name: str = "warehouse", kind: str = "postgres", **settings: Any) -> dict[str, Any]:
    return {"kind": kind, "name": name, "host": "h", "database": "d", "user": "u", **settings}


class Table:
    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.known: dict[str, Definition] = {}
        self.newest: Definition | None = None
        self.queues = queues_of(self.home)

    def define(self, *sinks: Any, begins: bool = False) -> Definition:
        schema = {"type": "record", "name": "notes", "fields": [{"name": "id", "type": "long"}]}
        declared = parse_table({"schema": schema, "primary_key": ["id"], "sinks": ["delta", *sinks]})
        before = self.newest
        revision, generation = (before.revision + 1, before.generation + begins) if before else (1, 1)
        previous = before.fingerprint if before and not begins else None
        made = define("acme", declared, revision, generation, previous=previous)
        self.known[made.fingerprint] = self.newest = made
        return made

    def takers(self, definition: Definition, kind: str = "postgres") -> dict[str, Any]:
        roster = Roster(self.queues, self.known.__getitem__, kind, [("acme", "notes")])
        return {key.target: target.settings["host"] for key, target in roster.takers(definition).items()}

    def backfill(self, name: str = "warehouse") -> str | None:
        record = self.queues.get(QueueKey("postgres", "acme", "notes", name))
        assert record is not None
        assert record.member is not None
        return record.member.backfill.state if record.member.backfill else None


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def test_a_target_from_the_start_has_nothing_to_catch_up_with(table: Table) -> None:
    assert table.takers(table.define(sink())) == {"warehouse": "h"}
    assert table.takers(table.define(sink(), sink("second"))) == {"warehouse": "h", "second": "h"}
    assert (table.backfill(), table.backfill("second")) == (None, "wanted")


def test_old_imports_reach_who_came_later_but_not_before_it_is_known(table: Table) -> None:
    first, second = table.define(), table.define(sink())
    assert table.takers(first) == {}
    assert table.takers(second) == {"warehouse": "h"}
    assert table.takers(first) == {"warehouse": "h"}


def test_everything_goes_where_the_target_is_now(table: Table) -> None:
    first = table.define(sink(host="old"))
    assert table.takers(first) == {"warehouse": "old"}
    table.takers(table.define(sink(host="new")))
    assert table.takers(first) == {"warehouse": "new"}
    assert table.backfill() is None, "a server that moved brings its rows along"


def test_who_went_gets_what_began_before_and_comes_back_as_a_stranger(table: Table) -> None:
    first, second = table.define(sink()), table.define()
    table.takers(second)
    assert table.takers(first) == {"warehouse": "h"}
    assert table.takers(second) == {}
    assert table.takers(table.define(sink())) == {"warehouse": "h"}
    assert table.backfill() == "wanted"


def test_definitions_that_were_never_seen_count_too(table: Table) -> None:
    table.takers(table.define(sink()))
    table.define()
    table.takers(table.define(sink()))
    assert table.backfill() == "wanted", "it was away for one definition"


def test_a_new_generation_begins_empty_for_everyone(table: Table) -> None:
    first = table.define()
    table.takers(table.define(sink()))
    assert table.takers(table.define(sink(), begins=True)) == {"warehouse": "h"}
    assert table.backfill() is None
    assert table.takers(first) == {}, "rows of the past life"


def test_a_name_that_changes_its_kind_is_another_target(table: Table) -> None:
    table.takers(table.define(sink()))
    changed = table.define(sink(kind="cassandra", hosts=["h"]))
    assert table.takers(changed) == {}
    assert table.takers(changed, "cassandra") == {"warehouse": "h"}


def test_a_restart_knows_as_much(table: Table) -> None:
    first, second = table.define(), table.define(sink())
    table.takers(second)
    table.queues = queues_of(table.home)
    assert [record.key.target for record in table.queues.all() if record.member.is_catching_up] == ["warehouse"]
    assert table.takers(first) == {"warehouse": "h"}


def test_a_table_of_an_erased_tenant_says_nothing_of_one_that_comes_after_it(table: Table) -> None:
    assert table.takers(table.define(sink(host="old"))) == {"warehouse": "old"}
    with ControlStore(f"sqlite:///{table.home.store}").write() as connection:
        erase_rows(connection, "acme")
    table.newest = None
    assert table.takers(table.define(sink(host="new"))) == {"warehouse": "new"}
    assert table.takers(table.define(sink(host="new"), sink("second"))) == {"warehouse": "new", "second": "h"}
    assert table.backfill("second") == "wanted"
