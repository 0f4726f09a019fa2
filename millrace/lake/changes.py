"""Decisions in, log actions out: added files, marked or rewritten files, and the metadata that they need.
Writes deletion vectors and rewritten files; commits nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyroaring import BitMap

from millrace.lake.actions import Action, AddFile, Metadata, Protocol, remove_action
from millrace.lake.conform import conformed
from millrace.lake.data_files import refuse_marks_behind
from millrace.lake.decide import Dead, as_add
from millrace.lake.deletion_vectors import dead_positions, store_vectors
from millrace.lake.feed import FEATURE, LOG_RETENTION, has_feed, interval, switched
from millrace.lake.foreign import is_unknown, refuse_removals, refuse_unwritable
from millrace.lake.log import Snapshot
from millrace.lake.read import read_live_groups, row_count
from millrace.lake.schema import TableSpec, arrow_schema, evolved_schema, needs_timestamp_ntz
from millrace.lake.state import TableState
from millrace.lake.store import Store
from millrace.lake.stream_file import stream_data_file

REWRITTEN_PREFIX = "rewritten"
# A property of tables in which all files of ours have exactly the types of the columns.
EXACT_TYPES = "millrace.exactTypes"


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
    schema_json: str | None = None,
) -> list[Action]:
    """Adds files without their losing rows, and removes losing rows from live files. Files without live rows disappear.
    `schema_json`: the table's columns from now on, if they change."""
    anew = anew or Rewrites()
    touched = {path: snapshot.files[path] for path in (*dead, *anew.paths) if path in snapshot.files}
    actions = [remove_action(file, data_change) for file in touched.values()]
    marked: dict[str, BitMap] = {}
    for file in (*touched.values(), *added):
        losers, rows = dead.get(file.path), row_count(store, file)
        if losers is None and file.path not in anew.paths:
            actions.append(file.to_json(data_change))
            continue
        gone = dead_positions(store, file) | BitMap(() if losers is None else losers)
        refuse_marks_behind(store, file, gone, rows)
        if len(gone) == rows:
            continue
        if file.path in anew.paths or spec.deletion_vectors == "never":
            schema = schema_json or next_schema(snapshot, spec)
            actions.append(_rewritten(store, snapshot, spec, file, gone, anew, schema).to_json(data_change))
        else:
            marked[file.path] = gone
    files = {file.path: replace(file, rows=row_count(store, file)) for file in (*touched.values(), *added)}
    vectors = store_vectors(store, marked)
    return actions + [replace(files[path], deletion_vector=vectors[path]).to_json(data_change) for path in marked]


def declaration(
    snapshot: Snapshot,
    spec: TableSpec,
    actions: Sequence[Action],
    state: TableState | None = None,
    schema_json: str | None = None,
    *,
    begins: bool = False,
) -> list[Action]:
    """The metadata that these actions need: the table itself, its columns and state, the protocol of deletion vectors.
    `begins`: no row stays, so that nothing stays of what other engines changed about the table."""
    refuse_removals(snapshot, spec, actions)
    before, known = snapshot.metadata, TableState.of(snapshot.metadata)
    schema_json = schema_json or next_schema(snapshot, spec)
    metadata = before or Metadata.new(spec.name, schema_json, _configuration(spec))
    protocol = snapshot.protocol
    if begins:
        metadata = replace(metadata, configuration=_configuration(spec), partition_columns=())
        protocol = Protocol() if is_unknown(snapshot) else protocol
    else:
        refuse_unwritable(snapshot, spec)
    state = state or known
    configuration = state.configured(metadata.configuration)
    if state.feed or known.feed:
        # Else it is as another engine has set it.
        configuration = switched(configuration, spec.log_retention, state.feed)
    metadata = replace(metadata, schema_json=schema_json, configuration=configuration)
    if needs_timestamp_ntz(schema_json):
        protocol = protocol.having("timestampNtz")
    if any("deletionVector" in action.get("add", {}) for action in actions):
        protocol = protocol.having("deletionVectors")
        metadata = replace(metadata, configuration={**configuration, "delta.enableDeletionVectors": "true"})
    if has_feed(metadata):
        protocol = protocol.having(FEATURE)
    return _changed(before, metadata, snapshot.protocol, protocol)


def unmistakable(snapshot: Snapshot, actions: Sequence[Action]) -> list[Action]:
    """The actions of a rewrite that changes no data, with the table's metadata. Some engines ignore such a rewrite when they
    commit another one of the same files, and every row would be there twice. They do not ignore metadata."""
    if snapshot.metadata is None or any("metaData" in action for action in actions):
        return [*actions]
    return [snapshot.metadata.to_json(), *actions]


def next_schema(snapshot: Snapshot, spec: TableSpec) -> str:
    """The columns of a table that no definition changes now. One that was prepared for a definition keeps its columns;
    others get the spec's new ones."""
    current = snapshot.metadata.schema_json if snapshot.metadata else None
    is_prepared = TableState.of(snapshot.metadata).definition is not None
    return current if current is not None and is_prepared else evolved_schema(current, spec)


def _changed(before: Metadata | None, metadata: Metadata, old: Protocol, protocol: Protocol) -> list[Action]:
    actions = [protocol.to_json()] if before is None or protocol != old else []
    return actions + ([metadata.to_json()] if metadata != before else [])


def _configuration(spec: TableSpec) -> dict[str, str]:
    return {
        LOG_RETENTION: interval(spec.log_retention),
        "delta.setTransactionRetentionDuration": interval(spec.chunk_memory),
        EXACT_TYPES: "true",
    }


def _rewritten(
    store: Store, snapshot: Snapshot, spec: TableSpec, file: AddFile, gone: BitMap, anew: Rewrites, schema_json: str
) -> AddFile:
    """The file's live rows in the table's own types: another engine may have written the file with others."""
    this = file.path, bytes(gone.serialize())
    if this not in anew.written:
        schema = arrow_schema(schema_json)
        if file.path in anew.paths and snapshot.metadata is not None:
            former = read_live_groups(store, file, gone, arrow_schema(snapshot.metadata.schema_json))
            groups: Iterator[pa.Table] = (
                conformed(anew.rows(group), schema, store.where, file.name) for group in former
            )
        else:
            groups = read_live_groups(store, file, gone, schema)
        # If another engine wrote a key twice, both rows stay until a newer one comes.
        staged, _ = stream_data_file(store, schema, groups, spec.key, REWRITTEN_PREFIX)
        anew.written[this] = as_add(staged)
    return anew.written[this]
