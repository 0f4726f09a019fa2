"""Revisions of a table in tests: Avro fields in, definitions that name each other out, and rows staged under them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from millrace.arrow.types import arrow_type
from millrace.lake.batch import DefinedFile, WriteBatch
from millrace.lake.log import Snapshot, load
from millrace.lake.read import scan
from millrace.lake.schema import spec_of
from millrace.lake.sidecar import StagedChunk, StagedFile, write_data_file
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.model.table import Definition, TableDeclaration, define

ID = {"name": "id", "type": "long"}


def column(name: str, avro: Any, *aliases: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": avro, **({"aliases": list(aliases)} if aliases else {}), **more}


@dataclass
class Revisions:
    """A table's definitions, each after the one before."""

    key: tuple[str, ...] = ("id",)
    deletion_vectors: str = "auto"
    known: dict[str, Definition] = field(default_factory=dict)
    newest: Definition | None = None
    change_feed: bool = False

    def add(
        self, *fields: Mapping[str, Any], key: Sequence[str] | None = None, floor: int | None = None, **policies: Any
    ) -> Definition:
        """The next revision; with a `floor` it begins a new generation."""
        before = self.newest
        self.key = self.key if key is None else tuple(key)
        schema = {"type": "record", "name": "t", "fields": [dict(one) for one in fields]}
        policies = {"deletion_vectors": self.deletion_vectors, "change_feed": self.change_feed, **policies}
        table = TableDeclaration("t", schema, self.key, **policies)
        revision, generation = (before.revision + 1, before.generation) if before else (1, 1)
        if floor is not None:
            made = define("acme", table, revision, generation + 1, floor)
        else:
            lineage = (before.floor, before.fingerprint) if before else (0, None)
            made = define("acme", table, revision, generation, *lineage)
        self.known[made.fingerprint] = self.newest = made
        return made

    def open(self, root: Path) -> LakeTable:
        assert self.newest is not None
        return LakeTable(Store(root), spec_of(self.newest), definitions=self.known.__getitem__)


def stage_under(
    store: Store, definition: Definition, version: int, rows: Sequence[Mapping[str, Any]], prefix: str = "part"
) -> StagedFile:
    """One chunk of rows as the definition declares them; a row that says `_deleted` deletes its key."""
    table, chunk = row_table(definition, version, rows)
    return write_data_file(store, table, definition.table.primary_key, prefix, [chunk])


def row_table(
    definition: Definition, version: int, rows: Sequence[Mapping[str, Any]], first_position: int = 0
) -> tuple[pa.Table, StagedChunk]:
    """A chunk's accepted rows, with `_deleted` if a row says so, and their place in a file."""
    columns = {
        column.name: pa.array([row.get(column.name) for row in rows], arrow_type(column))
        for column in definition.columns
    }
    own = {
        "_version": pa.array([version] * len(rows), pa.int64()),
        "_import": pa.array([f"imp{version}"] * len(rows), pa.string()),
        "_row": pa.array(range(1, len(rows) + 1), pa.int64()),
    }
    if any("_deleted" in row for row in rows):
        own["_deleted"] = pa.array([bool(row.get("_deleted")) for row in rows])
    return pa.table({**columns, **own}), StagedChunk(f"imp{version}/0", first_position, len(rows), version)


def write_under(
    table: LakeTable, definition: Definition, version: int, *rows: Mapping[str, Any], **more: Any
) -> Snapshot:
    staged = stage_under(table.store, definition, version, rows)
    return table.write(WriteBatch((DefinedFile(staged, definition),), **more))


def rows_of(table: LakeTable, version: int | None = None) -> list[dict[str, Any]]:
    """The declared cells of every live row, in key order."""
    rows = scan(table.store, load(table.store, version)).to_pylist()
    shown = [{name: cell for name, cell in row.items() if not name.startswith("_")} for row in rows]
    return sorted(shown, key=lambda row: str(next(iter(row.values()))).rjust(20))
