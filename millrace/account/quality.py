"""The end of an import in, its quality report out: from what its chunks told, its hashed keys, and the imports before it.

Where a rule holds the import, its hold is asked for instead of its end."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, select

from millrace.account.counting import Due
from millrace.model.chunk import Verdict
from millrace.model.imports import AMEND, COMPLETED, HELD, LOAD, PROCESSING, Import
from millrace.model.names import Home
from millrace.model.ops import HOLD_IMPORT, STOP_IMPORT
from millrace.model.quality import Measured, keys_folder, report, total
from millrace.model.rules import Rule
from millrace.model.table import Definition
from millrace.store import tables as t
from millrace.store.engine import upsert
from millrace.store.quality_tables import chunk_quality

MOST_PAST = 100
# Keys are compared in slices of their hash, so that the largest import takes no more memory than this many at a time.
KEYS_AT_ONCE = 8_000_000
_LARGEST = (1 << 64) - 1


def keep_facts(connection: Connection, verdicts: Iterable[Verdict]) -> None:
    rows = [
        {"import_id": verdict.import_id, "number": verdict.number, "facts": verdict.quality}
        for verdict in verdicts
        if verdict.quality is not None
    ]
    if rows:
        upsert(connection, chunk_quality, rows)


def with_quality(connection: Connection, imp: Import, asked: Due, definition: Definition, home: Home) -> Due | None:
    """What to ask for, with the report; nothing while someone must decide."""
    kind, body = asked
    if kind == STOP_IMPORT or not definition.rules:
        return asked
    if imp.state == HELD:
        return None
    told = imp.options.get("quality") or quality_of(connection, imp, definition, home)
    is_held = bool(told["held"]) and imp.state == PROCESSING and not imp.options.get("released")
    return HOLD_IMPORT if is_held else kind, {**body, "quality": told}


def quality_of(connection: Connection, imp: Import, definition: Definition, home: Home) -> dict[str, Any]:
    wanted = select(chunk_quality.c.facts).where(chunk_quality.c.import_id == imp.id)
    totals = total(connection.execute(wanted).scalars())
    octets = int((imp.announced or {}).get("bytes", 0))
    if imp.kind not in (LOAD, AMEND):
        return report(definition.rules, totals, Measured(imp.counts.read, octets, {}))
    past = _past(connection, imp)
    unique = [rule for rule in definition.rules if rule.kind == "unique"]
    repeated = {rule.name: repeated_keys(keys_folder(home.root, imp.id), rule) for rule in unique}
    rows, sizes = [counts["read"] for counts, _ in past], [int((end or {}).get("bytes", 0)) for _, end in past]
    return report(definition.rules, totals, Measured(imp.counts.read, octets, repeated, rows, sizes))


def _past(connection: Connection, imp: Import) -> list[tuple[dict[str, int], dict[str, int] | None]]:
    """Of the completed imports before, the newest first."""
    same = (t.imports.c.tenant == imp.tenant, t.imports.c.table_name == imp.table, t.imports.c.kind == LOAD)
    wanted = select(t.imports.c.counts, t.imports.c.announced).where(*same, t.imports.c.state == COMPLETED)
    rows = connection.execute(wanted.order_by(t.imports.c.ended_us.desc()).limit(MOST_PAST))
    return [(row.counts, row.announced) for row in rows]


def repeated_keys(folder: Path, rule: Rule) -> int:
    """How many rows have the key of another row of the import, the first of each key not counted."""
    chunks = [_keys(path, rule.name) for path in sorted(folder.glob("*.npz"))] if folder.is_dir() else []
    rows = sum(len(chunk) for chunk in chunks)
    slices = max(1, -(-rows // KEYS_AT_ONCE))
    edges = [round(_LARGEST * at / slices) for at in range(1, slices)]
    distinct = 0
    for low, high in zip([0, *edges], [*edges, None], strict=True):
        parts = [_between(chunk, low, high) for chunk in chunks]
        distinct += len(np.unique(np.concatenate(parts))) if parts else 0
    return rows - distinct


def _keys(path: Path, rule: str) -> npt.NDArray[np.uint64]:
    with np.load(path) as stored:
        found: npt.NDArray[np.uint64] = stored[rule] if rule in stored else np.empty(0, np.uint64)
        return found


def _between(keys: npt.NDArray[np.uint64], low: int, high: int | None) -> npt.NDArray[np.uint64]:
    first = int(np.searchsorted(keys, np.uint64(low)))
    return keys[first:] if high is None else keys[first : int(np.searchsorted(keys, np.uint64(high)))]
