"""Hashed values of an import in; out how many of its rows repeat a key, and how many point at no row of another table.

Partners are looked up in the key index of the other table as it is when the import is durable. The report names that
version."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, select

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

# Compared at a time: bounds the memory, however large the import is.
KEYS_AT_ONCE = 8_000_000
_LARGEST = (1 << 64) - 1


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


def slices_of(chunks: Sequence[Hashes]) -> Iterator[list[slice]]:
    """One part of every chunk at a time; equal hashes are in the same part."""
    parts = max(1, -(-sum(map(len, chunks)) // KEYS_AT_ONCE))
    edges = [np.uint64(round(_LARGEST * at / parts)) for at in range(1, parts)]
    borders = [[0, *np.searchsorted(keys, np.array(edges, np.uint64)).tolist(), len(keys)] for keys in chunks]
    for part in range(parts if chunks else 0):
        yield [slice(border[part], border[part + 1]) for border in borders]


def repeated_keys(chunks: Sequence[Hashes]) -> int:
    """How many rows repeat the key of an earlier row of the import."""
    parts = (
        np.concatenate([keys[part] for keys, part in zip(chunks, parts, strict=True)]) for parts in slices_of(chunks)
    )
    return sum(len(keys) - len(np.unique(keys)) for keys in parts)
