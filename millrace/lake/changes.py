"""Decisions in, log actions out: added files, marked or rewritten files, and what the table must declare for them.
Writes deletion vectors and rewritten files; commits nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import pyarrow.parquet as pq
from pyroaring import BitMap

from millrace.lake.actions import Action, AddFile, Metadata, Protocol, remove_action
from millrace.lake.decide import Dead, as_add, dead_positions
from millrace.lake.deletion_vectors import store_vectors
from millrace.lake.log import Snapshot
from millrace.lake.read import read_live_rows
from millrace.lake.schema import TableSpec, evolved_schema, needs_timestamp_ntz
from millrace.lake.sidecar import write_data_file
from millrace.lake.store import Store
from millrace.model.errors import Unavailable

REWRITTEN_PREFIX = "rewritten"


def file_actions(
    store: Store,
    snapshot: Snapshot,
    spec: TableSpec,
    added: Sequence[AddFile],
    dead: Mapping[str, Dead],
    data_change: bool = True,
) -> list[Action]:
    """Adds files without their dead rows, and takes dead rows out of live files. Files wholly dead disappear."""
    touched = {path: snapshot.files[path] for path in dead if path in snapshot.files}
    actions = [remove_action(file, data_change) for file in touched.values()]
    partly: dict[str, AddFile] = {}
    for file in (*touched.values(), *added):
        losers = dead.get(file.path)
        if losers is None:
            actions.append(file.to_json(data_change))
        elif len(losers) + file.dead_rows < _rows(store, file):
            partly[file.path] = replace(file, rows=_rows(store, file))
    marked = _rewritten(store, spec, partly, dead) if spec.deletion_vectors == "never" else _marked(store, partly, dead)
    return actions + [file.to_json(data_change) for file in marked]


def declaration(snapshot: Snapshot, spec: TableSpec, actions: Sequence[Action]) -> list[Action]:
    """What must be declared with these actions: the table itself, added columns, the protocol of deletion vectors."""
    snapshot.protocol.refuse_if_unknown(spec.name)
    before = snapshot.metadata
    if before is not None and before.partition_columns:
        raise Unavailable(f"Table {spec.name!r} is partitioned by {before.partition_columns}.", remedy="Load it anew.")
    schema_json = evolved_schema(before.schema_json if before else None, spec)
    metadata = before or Metadata.new(spec.name, schema_json, _configuration(spec))
    metadata, protocol = replace(metadata, schema_json=schema_json), snapshot.protocol
    if needs_timestamp_ntz(schema_json):
        protocol = protocol.having("timestampNtz")
    if any("deletionVector" in action.get("add", {}) for action in actions):
        protocol = protocol.having("deletionVectors")
        metadata = replace(metadata, configuration={**metadata.configuration, "delta.enableDeletionVectors": "true"})
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
    return file.rows if file.rows >= 0 else pq.read_metadata(store.path(file.name)).num_rows


def _marked(store: Store, files: Mapping[str, AddFile], dead: Mapping[str, Dead]) -> list[AddFile]:
    positions = {path: dead_positions(store, file) | BitMap(dead[path]) for path, file in files.items()}
    vectors = store_vectors(store, positions)
    return [replace(file, deletion_vector=vectors[path]) for path, file in files.items()]


def _rewritten(store: Store, spec: TableSpec, files: Mapping[str, AddFile], dead: Mapping[str, Dead]) -> list[AddFile]:
    written = []
    for path, file in files.items():
        table = read_live_rows(store, file, dead_positions(store, file) | BitMap(dead[path]))
        written.append(as_add(write_data_file(store, table, spec.key, REWRITTEN_PREFIX, tightly=True)))
    return written
