"""The Delta sink: staged files become part of their tables, one commit per batch and table, the last version winning."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from millrace.lake.batch import Batch, Definitions, Delivery, Publication, age
from millrace.lake.checkpoint import LOG_FOLDER
from millrace.lake.held import held_files, hold, release
from millrace.lake.schema import TableSpec, spec_of
from millrace.lake.state import NO_FLOOR
from millrace.lake.table import LakeTable
from millrace.model.chunk import PUBLISH, ROWS, TRUNCATE
from millrace.model.imports import ERROR_STORE
from millrace.model.names import Home
from millrace.model.sinks import DELTA_KIND
from millrace.model.table import Definition
from millrace.sink.contract import Group
from millrace.sink.upkeep import Upkeep

OPEN_TABLES = 2048


class DeltaSink:
    """Accepted rows, at lake/<tenant>/<table>."""

    name = "delta"

    def __init__(self, home: Home, upkeep: Upkeep) -> None:
        self._home = home
        self._tables = OpenTables(upkeep)

    def write(self, groups: Sequence[Group]) -> Sequence[Group]:
        """1. Hold what is to be seen as a whole. 2. Commit everything else, and what is published now, at once.
        3. Let go what was held. Each step may happen again."""
        groups = [group for group in groups if _is_kept_here(self._definition(group.definition))]
        if not groups:
            return groups
        newest = max((self._definition(group.definition) for group in groups), key=age)
        root = self._home.table(newest.tenant, newest.table.name)
        table = self._tables.get(root, spec_of(newest), self._definition)
        publications = tuple(Publication(group.import_id, group.version) for group in groups if group.kind == PUBLISH)
        visible = self._hold(table, [group for group in groups if group.kind == ROWS])  # 1
        for publication in publications:
            visible += held_files(table.store, publication.import_id, self._definition)
        floor = max((group.version for group in groups if group.kind == TRUNCATE), default=NO_FLOOR)
        self._tables.write(root, Batch(tuple(visible), floor, newest, publications))  # 2
        for publication in publications:
            release(table.store, publication.import_id)  # 3
        return groups

    def _hold(self, table: LakeTable, groups: Iterable[Group]) -> list[Delivery]:
        """The files that need not be held, those of imports that were published before among them."""
        visible, published = [], None
        for group in groups:
            if group.file is None:
                continue
            delivery = Delivery(group.file, self._definition(group.definition))
            if group.publish == "atomic":
                published = table.snapshot().transactions if published is None else published
                if Publication(group.import_id, 0).transaction_id not in published:
                    hold(table.store, group.import_id, delivery)
                    continue
            visible.append(delivery)
        return visible

    def _definition(self, fingerprint: str) -> Definition:
        return _definition(self._home.root, fingerprint)


class ErrorStore:
    """Rejected rows, at errors/<tenant>/<table>."""

    name = ERROR_STORE

    def __init__(self, home: Home, schema: pa.Schema, upkeep: Upkeep) -> None:
        self._home = home
        self._spec = TableSpec(name="errors", schema=schema, key=(), deletion_vectors="auto")
        self._tables = OpenTables(upkeep)

    def write(self, groups: Sequence[Group]) -> Sequence[Group]:
        root = self._home.table_errors(groups[0].tenant, groups[0].table)
        self._tables.get(root, self._spec)
        self._tables.write(root, Batch(tuple(Delivery(group.file) for group in groups if group.file is not None)))
        return groups


class OpenTables:
    """Handles on the tables written last; a handle holds its table's log position, so a commit costs what it adds."""

    def __init__(self, upkeep: Upkeep) -> None:
        self._upkeep = upkeep
        self._open: OrderedDict[Path, LakeTable] = OrderedDict()

    def get(self, root: Path, spec: TableSpec, definitions: Definitions | None = None) -> LakeTable:
        table = self._open.pop(root, None)
        if table is None or not (root / LOG_FOLDER).is_dir():
            # Also one that was erased meanwhile: what its handle remembers is of the table that is gone.
            table = LakeTable.open(root, spec, definitions=definitions)
        self._open[root] = table
        if len(self._open) > OPEN_TABLES:
            self._open.popitem(last=False)
        return table

    def write(self, root: Path, batch: Batch) -> None:
        table = self._open[root]
        table.write(batch)
        rows = sum(delivery.file.rows + delivery.file.deleted_rows for delivery in batch.files)
        self._upkeep.note(root, table.spec, rows)


def _is_kept_here(definition: Definition) -> bool:
    return any(target.kind == DELTA_KIND for target in definition.table.targets)


@lru_cache(maxsize=4096)
def _definition(home: Path, fingerprint: str) -> Definition:
    return Definition.from_json(Home(home).definition(fingerprint).read_bytes())
