"""Hashed values of an import in, how many of its rows point at no row of another table out.

Looked up in the key index of the other table as it is when the import is durable; the report names that version."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from sqlalchemy import Connection, select

from millrace.account.hashed_keys import slices_of
from millrace.exchange.places import Places
from millrace.exchange.rule_keys import Hashes, RuleKeys
from millrace.lake.deletion_vectors import load_vector
from millrace.lake.index import KeyIndex
from millrace.lake.log import Snapshot, load
from millrace.lake.store import Store
from millrace.model.errors import MillraceError
from millrace.model.imports import Import
from millrace.model.rules import Rule
from millrace.model.sinks import DELTA_KIND
from millrace.model.table import Definition
from millrace.store import tables as t


def orphans(connection: Connection, places: Places, keys: RuleKeys, imp: Import, rule: Rule) -> dict[str, Any]:
    """How many rows have no partner, and the version of the other table; or why that is unknown."""
    tenant = imp.tenant
    name, column = rule.settings["table"], rule.settings["column"]
    wanted = select(t.tables.c.definition).where(
        t.tables.c.tenant == tenant, t.tables.c.name == name, t.tables.c.dropped_us.is_(None)
    )
    found = connection.execute(wanted).scalar()
    if found is None:
        return {"unknown": f"There is no table {name}."}
    other = Definition.from_json(found.encode())
    if other.table.primary_key != (column,):
        return {"unknown": f"{column} is not the primary key of {name}."}
    if not any(target.kind == DELTA_KIND and not target.settings for target in other.table.targets):
        return {"unknown": f"{name} is kept elsewhere."}
    try:
        store = places.table_store(tenant, name)
        snapshot = load(store)
        index = KeyIndex(store, [column])
        rows = sum(_lost(store, snapshot, index, *part) for part in _values(keys, imp.id, rule.name))
    except (MillraceError, OSError) as error:
        # The import does not wait until somebody repairs the other table.
        return {"unknown": f"{name} cannot be read: {error}"[:200]}
    return {"broken": rows, "table_version": snapshot.version}


def _values(keys: RuleKeys, import_id: str, rule: str) -> Iterator[tuple[Hashes, Hashes, Hashes]]:
    """Distinct values, sorted, and how many rows have each."""
    first, second, times = (keys.hashes(import_id, f"{rule}.{part}") for part in ("h1", "h2", "n"))
    for parts in slices_of(first):
        h1, h2, count = (
            np.concatenate([hashes[part] for hashes, part in zip(chunks, parts, strict=True)])
            for chunks in (first, second, times)
        )
        distinct, at, group = np.unique(h1, return_index=True, return_inverse=True)
        yield distinct, h2[at], np.bincount(group, count, len(distinct)).astype(np.uint64)


def _lost(store: Store, snapshot: Snapshot, index: KeyIndex, h1: Hashes, h2: Hashes, times: Hashes) -> int:
    if not snapshot.files:
        return int(times.sum())
    paths, hits = index.find(snapshot, h1, h2)
    there = np.zeros(len(h1), np.bool_)
    for number in np.unique(hits.file):
        of_file = hits.file == number
        vector = snapshot.files[paths[number]].deletion_vector
        dead = np.array([] if vector is None else load_vector(store, vector).to_array(), np.uint32)
        there[hits.key[of_file][~np.isin(hits.position[of_file], dead)]] = True
    return int(times[~there].sum())
