"""How damage is planted in a dump: a register of damages with the check that must find each, and the tools to do harm."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl

from checker.dump import Document, Dump

Harm = Callable[[Dump], None]
TENANT, OTHER = "left", "right"


@dataclass(frozen=True, slots=True)
class Damage:
    name: str
    found_by: str
    harm: Harm


DAMAGES: list[Damage] = []


def damage(name: str, found_by: str) -> Callable[[Harm], Harm]:
    def register(harm: Harm) -> Harm:
        DAMAGES.append(Damage(name, found_by, harm))
        return harm

    return register


def restore(dump: Dump, table: str, change: Callable[[pl.DataFrame], pl.DataFrame], tenant: str = TENANT) -> None:
    """Changes a table for every reader, as damage in the store would."""
    for reader in dump.readers:
        dump.stored[reader, tenant, table] = change(dump.stored[reader, tenant, table])


def rewrite(dump: Dump, topic: str, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Changes records of a topic for every reader; None leaves a record as it is."""
    mine = pl.col("topic").str.ends_with(topic)
    texts = [json.loads(text) for text in dump.records.filter(mine)["text"]]
    changed = [json.dumps(change(text) or text) for text in texts]
    here = dump.records.filter(mine).with_columns(pl.Series("text", changed))
    dump.records = pl.concat([dump.records.filter(~mine), here])


def ended(dump: Dump, table: str, state: str = "completed") -> Document:
    return next(d for d in dump.imports if d["tenant"] == TENANT and d["table"] == table and d["state"] == state)


def end_of(dump: Dump, subject: str) -> Document:
    return next(e for e in dump.events if e["subject"] == subject and e["type"].endswith("completed"))
