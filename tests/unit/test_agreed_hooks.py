"""Notification targets of an agreement become webhooks, and go with it; keys of imports that are over are swept."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from millrace.api.declarations.agreed_hooks import keep_agreed, refuse_strange_targets
from millrace.api.jobs.sweeping import forget_keys
from millrace.exchange.home import Home
from millrace.exchange.rule_keys import RuleKeys
from millrace.model.agreement import Agreement, parse_agreement
from millrace.model.errors import Invalid
from millrace.model.imports import COMPLETED, PROCESSING, Import
from millrace.notify.subscriptions import NewSubscription, Subscriptions
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from millrace.store.records import import_row


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ControlStore]:
    made = ControlStore(f"sqlite:///{tmp_path / 'control.db'}")
    tenant = {"name": "acme", "folded_name": "acme", "partition": 0, "revision": 1, "agreement": {}}
    with made.write() as connection:
        connection.execute(insert(t.tenants).values(**tenant))
    yield made
    made.close()


def agreed(*notifications: Any) -> Agreement:
    return parse_agreement({"client": "acme", "notifications": [*notifications]})[0]


def hooks(store: ControlStore) -> dict[str, tuple[str, list[str]]]:
    return {one["name"]: (one["url"], one["types"]) for one in Subscriptions(store).documents("acme")}


def test_webhooks_follow_the_agreement_and_others_stay(store: ControlStore) -> None:
    Subscriptions(store).add("acme", NewSubscription("mine", "https://example.org/", ["*"], "in_order"))
    keep_agreed(
        store, agreed("https://a.example/", {"url": "https://b.example/", "events": ["import.held"], "name": "ops"})
    )
    mine = {"mine": ("https://example.org/", ["*"])}
    ops = {"agreed-ops": ("https://b.example/", ["import.held"])}
    assert hooks(store) == {**mine, **ops, "agreed-1": ("https://a.example/", ["*"])}
    keep_agreed(store, agreed({"url": "https://c.example/", "name": "ops"}))
    assert hooks(store) == {**mine, "agreed-ops": ("https://c.example/", ["*"])}
    keep_agreed(store, agreed())
    assert hooks(store) == mine


@pytest.mark.parametrize("target", ["https://user:secret@a.example/", {"url": "https://a.example", "events": ["!"]}])
def test_targets_that_could_never_work_are_refused(target: Any) -> None:
    with pytest.raises(Invalid):
        refuse_strange_targets(agreed(target))


def test_hashed_keys_go_with_the_import(store: ControlStore, tmp_path: Path) -> None:
    for import_id, state in (("imp_a", PROCESSING), ("imp_b", COMPLETED)):
        imp = Import(import_id, "acme", "t", "d", state, 1, 1, (), 1)
        with store.write() as connection:
            connection.execute(insert(t.imports).values(import_row(imp, 0)))
    keys = RuleKeys(Home(tmp_path))
    for import_id in ("imp_a", "imp_b", "imp_unknown"):
        keys.keep(import_id, 0, {})
    forget_keys(store, keys)
    assert keys.imports() == ["imp_a"]
