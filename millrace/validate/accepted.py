"""The parsed chunk and its rejected rows in; the accepted rows as they are stored, and their facts for the import's quality
report out: counts, some row numbers, and hashed keys.

If some rows delete their key, the last column marks them. Of these only the key is kept."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millrace.arrow.types import arrow_type, stored_schema
from millrace.lake.keyhash import hash_keys
from millrace.model.chunk import ChunkHeader
from millrace.model.columns import DELETED_COLUMN
from millrace.model.quality import CHUNK_SAMPLES
from millrace.model.rules import COUNT, REJECT, Rule
from millrace.model.table import Definition
from millrace.validate.deletes import Flags
from millrace.validate.faults import Rows
from millrace.validate.parsed import Parsed, Reading
from millrace.validate.row_rules import BrokenRules

Keys = dict[str, npt.NDArray[np.uint64]]


def numbered(header: ChunkHeader, rows: Rows) -> Rows:
    """The numbers that some rows of the chunk have in the uploaded file."""
    if header.row_numbers is None:
        return rows + header.first_row
    return np.array(header.row_numbers, np.int64)[rows]


def accepted_rows(
    header: ChunkHeader,
    parsed: Parsed,
    reading: Reading,
    definition: Definition,
    bad: Rows | None,
    deleted: Flags | None,
) -> pa.Table:
    positions = np.arange(parsed.rows, dtype=np.int64) if parsed.positions is None else parsed.positions
    names = [column.name for column in definition.columns]
    columns = pa.table(_columns(parsed, reading, definition, len(positions)), names)
    if bad is not None:
        good = np.ones(parsed.rows, bool)
        good[bad] = False
        kept = good[positions]
        positions = positions[kept]
        columns = columns.filter(pa.array(kept))
        deleted = None if deleted is None else deleted[kept]
    own = [
        pa.repeat(pa.scalar(header.version, pa.int64()), len(positions)),
        pa.repeat(pa.scalar(header.import_id), len(positions)),
        pa.array(numbered(header, positions)),
    ]
    if deleted is None or not deleted.any():
        return pa.table([*columns.columns, *own], schema=stored_schema(definition.columns))
    kept_keys = _keys_alone(columns, reading.keys, deleted)
    return pa.table([*kept_keys, *own, pa.array(deleted)], schema=_schema_with_deletes(definition))


def _columns(parsed: Parsed, reading: Reading, definition: Definition, entries: int) -> list[pa.Array]:
    found = [*parsed.columns] if parsed.rescued is None else [*parsed.columns, parsed.rescued]
    if len(found) == len(definition.columns):
        return found
    by_name = dict(zip((column.name for column in reading.columns), parsed.columns, strict=True))
    return [by_name.get(column.name, pa.nulls(entries, arrow_type(column))) for column in definition.columns]


def _keys_alone(columns: pa.Table, keys: tuple[str, ...], deleted: Flags) -> list[pa.ChunkedArray]:
    upserts = pa.array(np.arange(len(deleted)), mask=deleted)
    return [
        column if name in keys else column.take(upserts)
        for name, column in zip(columns.column_names, columns.columns, strict=True)
    ]


def _schema_with_deletes(definition: Definition) -> pa.Schema:
    keys = definition.table.primary_key
    declared, own = stored_schema(definition.columns), len(definition.columns)
    fields = [
        field.with_nullable(field.nullable or (at < own and field.name not in keys))
        for at, field in enumerate(declared)
    ]
    return pa.schema([*fields, pa.field(DELETED_COLUMN, pa.bool_(), False)])


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
