"""The changes of one commit in, a file of Delta's change data feed and its action out. A row that takes the place of another
one of its key is an update: both are in the file. Reads old rows by their positions; looks up no key.
"""

import hashlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millrace.lake.actions import Action, AddFile
from millrace.lake.changes import Rewrites
from millrace.lake.conform import conformed
from millrace.lake.decide import Dead, Decision
from millrace.lake.deletion_vectors import dead_positions
from millrace.lake.feed import AFTER, BEFORE, CHANGES_FOLDER, DELETE, INSERT, TYPE_COLUMN
from millrace.lake.log import Snapshot
from millrace.lake.read import Marks, read_marked_groups, row_count
from millrace.lake.schema import arrow_schema
from millrace.lake.store import Store
from millrace.lake.stream_file import row_groups


@dataclass(frozen=True, slots=True, eq=False)
class CommitChanges:
    """`snapshot` is the table before the commit, `schema_json` are its columns after it. `added` are the decision's files.
    `ends`: every row of the table leaves. Memory: a row group, and some bytes for each row of one file."""

    store: Store
    snapshot: Snapshot
    schema_json: str
    added: Sequence[AddFile]
    decision: Decision
    anew: Rewrites
    ends: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the log says it all: only whole files come, or only whole files go. Then the readers of the feed take
        their rows as inserted or deleted. Not all readers of the feed look at deletion vectors."""
        if self.anew.paths:
            return False
        leaving = self._leaving()
        if not leaving:
            return all(self._lost_rows(file) in (0, file.rows) for file in self.added)
        if any(self._lost_rows(file) < file.rows for file in self.added):
            return False
        return all(
            file.deletion_vector is None and self._lost_rows(file) == row_count(self.store, file) for file in leaving
        )

    @property
    def identity(self) -> bytes:
        """The same for the same changes, so that a second attempt can use the file of the first."""
        digest = hashlib.blake2b(self.schema_json.encode(), digest_size=16)
        for file in (*self._leaving(), *self.added):
            vector = file.deletion_vector.identity if file.deletion_vector else ""
            digest.update(f"\n{file.path}\n{vector}\n{file.path in self.anew.paths}\n".encode())
            digest.update(np.sort(self._lost(file)).tobytes())
            digest.update(b"\n" + np.sort(self._updated(file)).tobytes())
        return digest.digest()

    def tables(self) -> Iterator[pa.Table]:
        for file in self._leaving():
            yield from self._rows_that_leave(file)
        for file in self.added:
            if self._lost_rows(file) < file.rows:
                yield from self._rows_that_come(file)

    def _leaving(self) -> list[AddFile]:
        files = self.snapshot.files
        if self.ends:
            return [file for file in files.values() if file.live_rows]
        dead = (path for path, positions in self.decision.dead.items() if len(positions))
        return [files[path] for path in dict.fromkeys((*dead, *self.anew.paths)) if path in files]

    def _lost(self, file: AddFile) -> Dead:
        """May name rows twice, and rows that were deleted before."""
        if self.ends and file.path in self.snapshot.files:
            return np.arange(row_count(self.store, file), dtype=np.uint32)
        return self.decision.dead.get(file.path, _NONE)

    def _lost_rows(self, file: AddFile) -> int:
        return len(np.unique(self._lost(file)))

    def _updated(self, file: AddFile) -> Dead:
        return (self.decision.updated or {}).get(file.path, _NONE)

    def _rows_that_leave(self, file: AddFile) -> Iterator[pa.Table]:
        """Deleted and replaced rows. A file that is rewritten for another shape of the table updates its rows."""
        rows, is_reshaped = row_count(self.store, file), file.path in self.anew.paths
        was_live = ~_flags(rows, np.asarray(dead_positions(self.store, file).to_array()))
        is_lost, is_updated = _flags(rows, self._lost(file)) & was_live, _flags(rows, self._updated(file))
        wanted = was_live if is_reshaped else is_lost
        places = np.flatnonzero(wanted)
        former = self._former_schema()
        for group in read_marked_groups(self.store, file, wanted, former):
            here, places = places[: group.num_rows], places[group.num_rows :]
            stays = ~is_lost[here]
            yield self._typed(self._in_new_columns(group), is_updated[here] | stays, (DELETE, BEFORE))
            if is_reshaped:
                kept = conformed(
                    self.anew.rows(group.filter(pa.array(stays))), self.schema, self.store.where, file.name
                )
                yield self._typed(kept, np.ones(kept.num_rows, dtype=bool), (INSERT, AFTER))

    def _rows_that_come(self, file: AddFile) -> Iterator[pa.Table]:
        stays = ~_flags(file.rows, self._lost(file))
        kinds = _flags(file.rows, self._updated(file))[stays]
        for group in read_marked_groups(self.store, file, stays, self.schema):
            here, kinds = kinds[: group.num_rows], kinds[group.num_rows :]
            yield self._typed(group, here, (INSERT, AFTER))

    @property
    def schema(self) -> pa.Schema:
        return arrow_schema(self.schema_json)

    def _former_schema(self) -> pa.Schema:
        metadata = self.snapshot.metadata
        return self.schema if metadata is None else arrow_schema(metadata.schema_json)

    def _in_new_columns(self, rows: pa.Table) -> pa.Table:
        """Old rows as a reader finds them who knows the new columns only: by their names."""
        schema = self.schema
        if rows.schema.equals(schema):
            return rows
        return pa.Table.from_arrays([_cells(rows, field) for field in schema], schema=schema)

    def _typed(self, rows: pa.Table, is_update: Marks, names: tuple[str, str]) -> pa.Table:
        otherwise, update = names
        kinds = pc.if_else(pa.array(is_update), pa.scalar(update), pa.scalar(otherwise))
        return rows.append_column(TYPE_COLUMN, kinds)


class ChangeFiles:
    """The files of changes that one write makes, in several attempts if necessary. A file of an attempt that failed is left
    to the vacuum: the attempt may have succeeded without anybody being told."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._written: dict[bytes, Action] = {}

    def actions(self, changes: CommitChanges) -> list[Action]:
        """The action that names the file. Nothing if readers need none."""
        if changes.is_plain:
            return []
        identity = changes.identity
        if identity not in self._written:
            self._written[identity] = self._write(changes)
        return [self._written[identity]]

    def _write(self, changes: CommitChanges) -> Action:
        path = f"{CHANGES_FOLDER}/cdc-{uuid.uuid4().hex}.parquet"
        schema = changes.schema.append(pa.field(TYPE_COLUMN, pa.string()))
        options: dict[str, Any] = {"compression": "snappy", "use_dictionary": [TYPE_COLUMN], "store_schema": False}
        with self._store.creating(path) as file:
            with pq.ParquetWriter(file, schema, **options) as writer:
                for group in row_groups(changes.tables(), schema):
                    writer.write_table(group, row_group_size=max(1, group.num_rows))
            size = file.tell()
        return {"cdc": {"path": path, "partitionValues": {}, "size": size, "dataChange": False}}


_NONE: Dead = np.empty(0, dtype=np.uint32)


def _flags(rows: int, positions: npt.NDArray[Any]) -> Marks:
    flags = np.zeros(rows, dtype=bool)
    flags[positions] = True
    return flags


def _cells(rows: pa.Table, field: pa.Field) -> Any:
    if field.name not in rows.column_names:
        return pa.nulls(rows.num_rows, field.type)
    try:
        return rows[field.name].cast(field.type)
    except (pa.ArrowException, NotImplementedError):
        # A new generation may have given the name to a column of another kind.
        return pa.nulls(rows.num_rows, field.type)
