"""The Delta sink: staged files become part of their tables, one commit per batch and table, the last version winning."""

from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from millrace.lake.schema import DeletionVectors, TableSpec
from millrace.lake.table import LakeTable
from millrace.model.columns import arrow_schema
from millrace.model.imports import ERROR_STORE
from millrace.model.names import Home
from millrace.model.table import Definition, TableDeclaration
from millrace.sink.contract import Group
from millrace.sink.upkeep import Upkeep

OPEN_TABLES = 2048


class DeltaSink:
    """Accepted rows, at lake/<tenant>/<table>."""

    name = "delta"

    def __init__(self, home: Home, upkeep: Upkeep) -> None:
        self._home = home
        self._tables = OpenTables(upkeep)

    def write(self, groups: Sequence[Group]) -> None:
        # The newest definition of the batch has every column that an older one has.
        definition = max((_definition(self._home.root, group.definition) for group in groups), key=lambda d: d.revision)
        root = self._home.table(definition.tenant, definition.table.name)
        self._tables.apply(root, _spec(definition), groups)


class ErrorStore:
    """Rejected rows, at errors/<tenant>/<table>."""

    name = ERROR_STORE

    def __init__(self, home: Home, schema: pa.Schema, upkeep: Upkeep) -> None:
        self._home = home
        self._spec = TableSpec(name="errors", schema=schema, key=(), deletion_vectors="auto")
        self._tables = OpenTables(upkeep)

    def write(self, groups: Sequence[Group]) -> None:
        self._tables.apply(self._home.table_errors(groups[0].tenant, groups[0].table), self._spec, groups)


class OpenTables:
    """Handles on the tables written last; a handle holds its table's log position, so a commit costs what it adds."""

    def __init__(self, upkeep: Upkeep) -> None:
        self._upkeep = upkeep
        self._open: OrderedDict[Path, LakeTable] = OrderedDict()

    def apply(self, root: Path, spec: TableSpec, groups: Sequence[Group]) -> None:
        files = [group.file for group in groups if group.file is not None]
        self._get(root, spec).apply(files)
        self._upkeep.note(root, spec, sum(file.rows for file in files))

    def _get(self, root: Path, spec: TableSpec) -> LakeTable:
        table = self._open.pop(root, None)
        if table is None or table.spec != spec:
            table = LakeTable.open(root, spec)
        self._open[root] = table
        if len(self._open) > OPEN_TABLES:
            self._open.popitem(last=False)
        return table


@lru_cache(maxsize=4096)
def _definition(home: Path, fingerprint: str) -> Definition:
    return Definition.from_json(Home(home).definition(fingerprint).read_bytes())


def _vectors(table: TableDeclaration) -> DeletionVectors:
    return "never" if table.deletion_vectors == "never" else "auto"


def _spec(definition: Definition) -> TableSpec:
    table = definition.table
    return TableSpec(table.name, arrow_schema(definition.columns), table.primary_key, _vectors(table))
