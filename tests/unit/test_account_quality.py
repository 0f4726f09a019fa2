"""Quality reports: what chunks told, keys that repeat over chunks, bounds by the imports before; what is held."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import insert

from millrace.account import references
from millrace.account.counting import Due
from millrace.account.quality import keep_facts, with_quality
from millrace.account.references import repeated_keys
from millrace.declare.table import parse_table
from millrace.exchange.home import Home
from millrace.exchange.mailboxes import open_exchange
from millrace.exchange.rule_keys import RuleKeys
from millrace.lake.store import Store as LakeStore
from millrace.lake.table import LakeTable
from millrace.model.budget import Budget
from millrace.model.chunk import ChunkVerdict
from millrace.model.imports import APPEND, HELD, LOAD, PROCESSING, STOPPING, Counts, Import
from millrace.model.ops.imports import HoldImport, SettleImport
from millrace.model.quality import Measured, Totals, report, total
from millrace.model.rules import parse_rules
from millrace.model.table import Definition, define
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from millrace.store.records import import_row
from tests.support.chunks import column, csv, table
from tests.support.lake import KEYED, stage

SETTLE = SettleImport("acme", "imp_1", counts=Counts(2, 20, 20), durable={"delta": 2})


def judged(rule: dict[str, Any], totals: Totals, measured: Measured) -> dict[str, Any]:
    [one] = report(parse_rules([rule]), totals, measured)["rules"]
    return dict(one)


def bounded(words: dict[str, Any], rows: int, *past: int) -> str:
    return str(judged({"rows": words}, Totals(), Measured(rows, 0, {}, past, past))["verdict"])


def test_bounds_are_by_themselves_or_by_the_mean_of_the_last_imports() -> None:
    assert [bounded({"min": 10, "max": 20}, rows) for rows in (9, 10, 20, 21)] == ["broken", "kept", "kept", "broken"]
    usual = {"min_percent": 50, "max_percent": 200, "last": 2}
    assert [bounded(usual, rows, 100, 300, 9_000) for rows in (99, 100, 400, 401)] == [
        "broken",
        "kept",
        "kept",
        "broken",
    ]
    assert bounded(usual, 1) == "unknown", "there is nothing to compare with"
    assert bounded({"min": 5, **usual}, 4) == "broken"


def test_the_share_of_nulls_is_of_accepted_rows() -> None:
    facts = [{"rows": 50, "broken": {}, "samples": {}, "nulls": {"a": 3}}] * 2
    rule = {"column": "a", "max_null_percent": 6}
    assert judged(rule, total(facts), Measured(100, 0, {}, (), ()))["verdict"] == "kept"
    assert judged({**rule, "max_null_percent": 5.9}, total(facts), Measured(100, 0, {}, (), ()))["verdict"] == "broken"


def test_streamed_rows_are_no_import_of_their_own() -> None:
    rules: list[dict[str, Any]] = [{"rows": {"min": 5}}, {"unique": "key"}, {"column": "a", "max_null_percent": 0}]
    rules.append({"name": "r", "column": "a", "min": 1, "action": "hold"})
    told = report(parse_rules(rules), Totals(1, Counter(r=1)), Measured(1, 0, {}))
    assert [one["verdict"] for one in told["rules"]] == ["unknown"] * 3 + ["broken"]
    assert told["held"] == [], "whoever streams waits for the end"


def test_keys_repeat_over_chunks_however_many_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(7)
    chunks = [np.sort(chance.integers(0, 1 << 64, 1000, np.uint64)) for _ in range(5)]
    chunks[3][:10] = chunks[0][:10]
    chunks[4][-2] = chunks[4][-1]
    kept = RuleKeys(Home(tmp_path))
    for number, keys in enumerate(chunks):
        for _ in range(2):
            kept.keep("imp_1", number, {"u": np.sort(keys)})
    assert repeated_keys(kept.hashes("imp_1", "u")) == 11
    monkeypatch.setattr(references, "KEYS_AT_ONCE", 700)
    assert repeated_keys(kept.hashes("imp_1", "u")) == 11
    assert repeated_keys(kept.hashes("imp_2", "u")) == 0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ControlStore]:
    made = ControlStore(f"sqlite:///{tmp_path / 'control.db'}")
    yield made
    made.close()


def imported(**changes: Any) -> Import:
    values: dict[str, Any] = {
        "id": "imp_1", "tenant": "acme", "table": "t", "definition": "d", "state": PROCESSING, "first_version": 1,
        "versions": 1, "sinks": ("delta",), "begun_us": 1, "counts": Counts(2, 20, 20), "kind": LOAD,
        "announced": {"chunks": 2, "rows": 20, "bytes": 100},
    }  # fmt: skip
    return Import(**{**values, **changes})


def ruled(*rules: dict[str, Any]) -> Definition:
    return table(column("id", "int"), key=("id",), rules=[*rules])


def asked(store: ControlStore, imp: Import, definition: Definition, tmp_path: Path) -> Due | None:
    with store.read() as connection:
        return with_quality(connection, imp, SETTLE, definition, open_exchange(tmp_path))


def test_facts_told_twice_count_once_and_a_broken_rule_holds_the_import(store: ControlStore, tmp_path: Path) -> None:
    facts = {"rows": 10, "broken": {"ids": 2}, "samples": {"ids": [3, 4]}, "nulls": {}}
    for _ in range(2):
        with store.write() as connection:
            keep_facts(connection, [ChunkVerdict("imp_1", n, 0, 10, 10, 0, quality=facts) for n in (0, 1)])
    definition = ruled({"name": "ids", "column": "id", "min": 5, "action": "hold"})
    due = asked(store, imported(), definition, tmp_path)
    assert due is not None
    assert isinstance(due, HoldImport)
    assert due.quality["rules"][0] == {
        "name": "ids", "kind": "range", "columns": ["id"], "action": "hold", "broken": 4, "of": 20, "verdict": "broken",
        "samples": [3, 3, 4, 4],
    }  # fmt: skip
    assert asked(store, imported(state=HELD), definition, tmp_path) is None
    kept = {"quality": due.quality}
    stopping = asked(store, imported(state=STOPPING, options=kept), definition, tmp_path)
    assert stopping is not None
    assert isinstance(stopping, SettleImport)
    released = asked(store, imported(options={**kept, "released": {"by": ""}}), definition, tmp_path)
    assert released is not None
    assert isinstance(released, SettleImport)
    assert asked(store, imported(), ruled(), tmp_path) == SETTLE, "no rules, no report"


def test_an_import_over_a_budget_that_holds_is_held_without_any_rule(store: ControlStore, tmp_path: Path) -> None:
    over = {"counts": Counts(2, 20, 15, 5)}
    with store.read() as connection:

        def asked(imp: Import, budget: Budget) -> Due | None:
            end = replace(SETTLE, counts=imp.counts, budget=budget)
            return with_quality(connection, imp, end, ruled(), open_exchange(tmp_path))

        held = asked(imported(**over), Budget(rows=4, on_budget="hold"))
        assert isinstance(held, HoldImport)
        assert held.quality["held"] == ["error_budget"]
        assert held.quality["rules"] == [
            {"name": "error_budget", "kind": "budget", "columns": [], "action": "hold", "broken": 5, "of": 20,
             "verdict": "broken"}
        ]  # fmt: skip
        assert asked(imported(**over, state=HELD), held.budget) is None, "someone must decide"
        options = {"quality": held.quality, "released": {"by": "ann"}}
        released = asked(imported(**over, options=options), held.budget)
        assert isinstance(released, SettleImport)
        assert released.quality == held.quality, "the budget is named once"
        assert isinstance(asked(imported(**over), Budget(rows=5, on_budget="hold")), SettleImport)
        assert isinstance(asked(imported(**over), Budget(rows=4)), SettleImport), "its end says that it failed"


def test_bounds_look_at_completed_loads_of_the_same_table(store: ControlStore, tmp_path: Path) -> None:
    past = [
        imported(id="imp_a", state="completed", ended_us=5, counts=Counts(1, 100, 100)),
        imported(id="imp_b", state="failed", ended_us=6, counts=Counts(1, 1, 1)),
        imported(id="imp_c", state="completed", ended_us=7, counts=Counts(1, 1, 1), kind=APPEND),
        imported(id="imp_d", state="completed", ended_us=8, counts=Counts(1, 1, 1), table="other"),
    ]
    with store.write() as connection:
        connection.execute(insert(t.imports), [import_row(imp, 0) for imp in past])
    due = asked(store, imported(), ruled({"rows": {"min_percent": 30}, "action": "hold"}), tmp_path)
    assert due is not None
    assert (type(due), due.quality["rules"][0]["usual"]) == (HoldImport, 100.0)


POINTING = {"name": "known", "column": "id", "references": "others.id", "action": "hold"}


def pointing(store: ControlStore, tmp_path: Path, *others: tuple[int, int]) -> dict[str, Any]:
    """The report of an import of ids 1, 2, 3, 3 whose table points at another that had these (id, version)s written."""
    declared = {"schema": {"type": "record", "name": "others", "fields": [{"name": "id", "type": "long"}]}}
    other = define("acme", parse_table({**declared, "primary_key": ["id"]}), 1)
    row = {
        "tenant": "acme", "name": "others", "folded_name": "others", "definition": other.to_json().decode(),
        "last_version": 0, "defined_us": 0, "floor": 0, "open_imports": 0, "dropped_us": None, "is_purged": False,
    }  # fmt: skip
    with store.write() as connection:
        connection.execute(insert(t.tables).values(row))
    lake = LakeStore(Home(tmp_path).table("acme", "others"))
    if others:
        LakeTable(lake, KEYED).apply([stage(lake, [one], prefix=f"p{at}") for at, one in enumerate(others)])
    definition = table(column("id", ["null", "int"]), rules=[POINTING])
    for number, text in enumerate(("1\n2\nnone\n3\n", "3\n")):
        result = csv(definition, text, null="none")
        RuleKeys(Home(tmp_path)).keep("imp_1", number, result.keys)
    due = asked(store, imported(), definition, tmp_path)
    assert due is not None
    return dict(due.quality["rules"][0])


def test_rows_that_point_at_no_row_of_another_table_are_counted(store: ControlStore, tmp_path: Path) -> None:
    told = pointing(store, tmp_path, (1, 10), (2, 10), (1, 11))
    assert (told["verdict"], told["broken"], told["table_version"]) == ("broken", 2, 0)


def test_every_row_finds_its_partner_and_what_was_replaced_still_is_one(store: ControlStore, tmp_path: Path) -> None:
    assert pointing(store, tmp_path, (1, 10), (2, 10), (3, 10), (3, 11))["verdict"] == "kept"


def test_a_table_without_rows_is_nobodys_partner(store: ControlStore, tmp_path: Path) -> None:
    assert pointing(store, tmp_path)["broken"] == 4


def test_a_reference_to_no_table_is_unknown(store: ControlStore, tmp_path: Path) -> None:
    definition = table(column("id", "int"), rules=[POINTING])
    due = asked(store, imported(), definition, tmp_path)
    assert due is not None
    assert isinstance(due, SettleImport)
    assert due.quality["rules"][0]["unknown"] == "There is no table others."
