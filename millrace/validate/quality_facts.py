"""A judged chunk in, its facts for the import's quality report out: counts, some row numbers, and hashed keys."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millrace.lake.keyhash import hash_keys
from millrace.model.chunk import ChunkHeader
from millrace.model.columns import DELETED_COLUMN
from millrace.model.quality import CHUNK_SAMPLES
from millrace.model.rules import COUNT, REJECT, Rule
from millrace.model.table import Definition
from millrace.validate.accepted import numbered
from millrace.validate.faults import Rows
from millrace.validate.row_rules import BrokenRules

Keys = dict[str, npt.NDArray[np.uint64]]


def chunk_facts(
    header: ChunkHeader, definition: Definition, accepted: pa.Table, broken: BrokenRules, bad: Rows | None
) -> tuple[dict[str, Any], Keys]:
    """A rule that rejects counts all rows that break it. Other rules count only accepted rows that break them."""
    by_rule = {rule.name: rule for rule in definition.rules}
    rows = {name: _counted(by_rule[name], found, bad) for name, found in broken.rows.items()}
    upserts = _upserts(accepted)
    facts = {
        "rows": upserts.num_rows,
        "broken": {name: len(found) for name, found in rows.items() if len(found)},
        "samples": {
            name: numbered(header, found[:CHUNK_SAMPLES]).tolist()
            for name, found in rows.items()
            if len(found) and by_rule[name].action not in (COUNT, REJECT)
        },
        "nulls": {
            rule.columns[0]: upserts[rule.columns[0]].null_count for rule in definition.rules if rule.kind == "nulls"
        },
    }
    return facts, _keys(definition, upserts)


def _counted(rule: Rule, rows: Rows, bad: Rows | None) -> Rows:
    return rows if bad is None or rule.action == REJECT else np.setdiff1d(rows, bad, assume_unique=True)


def _upserts(accepted: pa.Table) -> pa.Table:
    return accepted.filter(pc.invert(accepted[DELETED_COLUMN])) if DELETED_COLUMN in accepted.column_names else accepted


def _keys(definition: Definition, rows: pa.Table) -> Keys:
    """Sorted, so that they compress and can be merged."""
    found: Keys = {}
    for rule in definition.rules:
        if rule.kind == "unique" and rows.num_rows:
            names = rule.columns or definition.table.primary_key
            found[rule.name] = np.sort(hash_keys([rows[name] for name in names])[0])
        elif rule.kind == "reference":
            found |= _pointers(rule.name, rows[rule.columns[0]].drop_null())
    return found


def _pointers(rule: str, values: pa.ChunkedArray) -> Keys:
    """The distinct values and the number of rows of each, without null: null references nothing."""
    if not len(values):
        return {}
    h1, h2 = hash_keys([values])
    distinct, at, times = np.unique(h1, return_index=True, return_counts=True)
    return {f"{rule}.h1": distinct, f"{rule}.h2": h2[at], f"{rule}.n": times.astype(np.uint64)}
