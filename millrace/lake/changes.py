"""Decisions in, log actions out: added files, marked or rewritten files, and the metadata that they need.
Writes deletion vectors and rewritten files; commits nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

from millrace.lake.actions import Action, AddFile, Metadata, Protocol, remove_action
from millrace.lake.decide import Dead, as_add
from millrace.lake.deletion_vectors import dead_positions, store_vectors
from millrace.lake.log import Snapshot
from millrace.lake.read import read_live_groups
from millrace.lake.schema import TableSpec, evolved_schema, needs_timestamp_ntz
from millrace.lake.state import TableState
from millrace.lake.store import Store
from millrace.lake.stream_file import stream_data_file
from millrace.model.errors import Unavailable

REWRITTEN_PREFIX = "rewritten"


@dataclass(frozen=True, slots=True)
class Rewrites:
    """Live files that must be rewritten in any case, and the new shape of their rows. `written` keeps the files of an attempt
    for the next."""

    paths: frozenset[str] = frozenset()
    rows: Callable[[pa.Table], pa.Table] = lambda table: table
    written: dict[tuple[str, bytes], AddFile] = field(default_factory=dict)


def file_actions(
    store: Store,
    snapshot: Snapshot,
    spec: TableSpec,
    added: Sequence[AddFile],
    dead: Mapping[str, Dead],
    data_change: bool = True,
    anew: Rewrites | None = None,
) -> list[Action]:
    """Adds files without their losing rows, and removes losing rows from live files. Files without live rows disappear."""
    anew = anew or Rewrites()
    touched = {path: snapshot.files[path] for path in (*dead, *anew.paths) if path in snapshot.files}
    actions = [remove_action(file, data_change) for file in touched.values()]
    marked: dict[str, BitMap] = {}
    for file in (*touched.values(), *added):
        losers, rows = dead.get(file.path), _rows(store, file)
        if losers is None and file.path not in anew.paths:
            actions.append(file.to_json(data_change))
            continue
        gone = dead_positions(store, file) | BitMap(() if losers is None else losers)
        if len(gone) == rows:
            continue
        if file.path in anew.paths or spec.deletion_vectors == "never":
            actions.append(_rewritten(store, spec, file, gone, anew).to_json(data_change))
        else:
            marked[file.path] = gone
    files = {file.path: replace(file, rows=_rows(store, file)) for file in (*touched.values(), *added)}
    vectors = store_vectors(store, marked)
    return actions + [replace(files[path], deletion_vector=vectors[path]).to_json(data_change) for path in marked]


def declaration(
    snapshot: Snapshot,
    spec: TableSpec,
    actions: Sequence[Action],
    state: TableState | None = None,
    schema_json: str | None = None,
) -> list[Action]:
    """The metadata that these actions need: the table itself, its columns and state, the protocol of deletion vectors.

    Without `schema_json` a table that was prepared for a definition keeps its columns; others get the spec's new ones."""
    snapshot.protocol.refuse_if_unknown(spec.name)
    before, known = snapshot.metadata, TableState.of(snapshot.metadata)
    if before is not None and before.partition_columns:
        raise Unavailable(f"Table {spec.name!r} is partitioned by {before.partition_columns}.", remedy="Load it anew.")
    if schema_json is None:
        current = before.schema_json if before else None
        schema_json = evolved_schema(current, spec) if current is None or known.definition is None else current
    metadata = before or Metadata.new(spec.name, schema_json, _configuration(spec))
    configuration = (state or known).configured(metadata.configuration)
    metadata, protocol = replace(metadata, schema_json=schema_json, configuration=configuration), snapshot.protocol
    if needs_timestamp_ntz(schema_json):
        protocol = protocol.having("timestampNtz")
    if any("deletionVector" in action.get("add", {}) for action in actions):
        protocol = protocol.having("deletionVectors")
        metadata = replace(metadata, configuration={**configuration, "delta.enableDeletionVectors": "true"})
    return _changed(before, metadata, snapshot.protocol, protocol)


def _changed(before: Metadata | None, metadata: Metadata, old: Protocol, protocol: Protocol) -> list[Action]:
    actions = [protocol.to_json()] if before is None or protocol != old else []
    return actions + ([metadata.to_json()] if metadata != before else [])


def _configuration(spec: TableSpec) -> dict[str, str]:
    return {
        "delta.logRetentionDuration": _interval(spec.log_retention),
        "delta.setTransactionRetentionDuration": _interval(spec.chunk_memory),
    }


def _interval(duration: timedelta) -> str:
    return f"interval {max(1, round(duration / timedelta(hours=1)))} hours"


def _rows(store: Store, file: AddFile) -> int:
    return file.rows if file.rows >= 0 else pq.read_metadata(store.source(file.name)).num_rows


def _rewritten(store: Store, spec: TableSpec, file: AddFile, gone: BitMap, anew: Rewrites) -> AddFile:
    this = file.path, bytes(gone.serialize())
    if this not in anew.written:
        groups = read_live_groups(store, file, gone)
        if file.path in anew.paths:
            groups = (anew.rows(group) for group in groups)
        first = next(groups)
        # Live rows never share a key, so no live row loses against another.
        staged, _ = stream_data_file(store, first.schema, chain([first], groups), spec.key, REWRITTEN_PREFIX)
        anew.written[this] = as_add(staged)
    return anew.written[this]
