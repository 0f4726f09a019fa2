"""The table's next shape: its present definition and a newer one in, the necessary changes out."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from millrace.lake.batch import Definitions
from millrace.lake.log import Snapshot
from millrace.lake.reshape import Reshape
from millrace.lake.schema import TableSpec, added_by_others, declared_schema, evolved_schema, spec_of
from millrace.lake.state import NO_FLOOR, TableState
from millrace.model.changes import Change
from millrace.model.errors import Corrupt, Unavailable
from millrace.model.evolution import changes, path
from millrace.model.table import Definition


@dataclass(frozen=True, slots=True)
class TableTarget:
    """`begins`: a new generation begins, so no stored row stays. `reshape`: how live rows change; None if they do not.
    `schema_json`: the table's new columns; None if they do not change. `others`: columns that other engines have added;
    their cells stay. `taken`: those that the definition declares from now on, each with the name that it has there."""

    spec: TableSpec
    definition: Definition | None = None
    begins: bool = False
    reshape: Reshape | None = None
    schema_json: str | None = None
    others: tuple[str, ...] = ()
    taken: tuple[tuple[str, str], ...] = ()

    def is_misshapen(self, stored: pa.Schema) -> bool:
        """Whether a file with these columns must be rewritten."""
        assert self.reshape is not None
        return self.reshape.is_needed(stored) or any(name in stored.names for _, name in self.taken)

    def rows(self, rows: pa.Table) -> pa.Table:
        """Live rows in their new shape."""
        reshaped = rows if self.reshape is None else self.reshape.rows(rows)
        for declared, name in self.taken:
            if name in rows.column_names and rows[name].null_count < rows.num_rows:
                reshaped = self._with_cells(reshaped, declared, name, rows[name])
        for name in self.others:
            if name in rows.column_names and name not in reshaped.column_names:
                reshaped = reshaped.append_column(rows.schema.field(name), rows[name])
        return reshaped

    def _with_cells(self, reshaped: pa.Table, declared: str, name: str, cells: pa.ChunkedArray) -> pa.Table:
        """Another engine has filled the column before it was declared."""
        place, kind = reshaped.schema.get_field_index(declared), reshaped.schema.field(declared).type
        is_added = self.reshape is not None and self.reshape.adds(declared)
        if not is_added or cells.type != kind:
            how = f"has the type {kind}" if is_added else "takes the cells of a column that is renamed"
            raise Unavailable(
                f"Another engine filled column {name!r} of table {self.spec.name!r}, as {cells.type}; its declaration {how}.",
                remedy=f"Empty it there (UPDATE … SET {name} = NULL): its cells would be lost.",
            )
        return reshaped.set_column(place, reshaped.schema.field(place), pc.coalesce(cells, reshaped[declared]))

    @property
    def floor(self) -> int:
        return self.definition.floor if self.definition and self.definition.floor else NO_FLOOR


class Lineage:
    """The definitions of a table, each with its previous one. A table without definitions follows its spec. The results are
    cached: the changes between two definitions never change, and many files may have an older definition."""

    def __init__(self, definitions: Definitions | None) -> None:
        self._definitions = definitions
        self._specs: dict[str, TableSpec] = {}
        self._reshapes: dict[tuple[str, str], Reshape] = {}

    def target(self, snapshot: Snapshot, spec: TableSpec, wanted: Definition | None) -> TableTarget:
        """The wanted shape if it is newer than the table's, else the table's."""
        recorded = self._recorded(snapshot)
        if wanted is None or (recorded is not None and wanted.age <= recorded.age):
            return TableTarget(spec if recorded is None else self._spec(recorded), recorded)
        spec = self._spec(wanted)
        if snapshot.metadata is None:
            return TableTarget(spec, wanted)
        if wanted.generation > (recorded.generation if recorded else 1):
            return TableTarget(spec, wanted, begins=True, schema_json=declared_schema(spec))
        before = recorded or self._forerunner(wanted)
        if before is wanted:
            return TableTarget(spec, wanted, schema_json=evolved_schema(snapshot.metadata.schema_json, spec))
        others = added_by_others(snapshot.metadata.schema_json, self._spec(recorded)) if recorded else ()
        declared = {name.lower(): name for name in spec.schema.names}
        named = [field["name"] for field in others]
        return TableTarget(
            spec,
            wanted,
            reshape=self.reshape(before, wanted),
            schema_json=declared_schema(spec, others),
            others=tuple(name for name in named if name.lower() not in declared),
            taken=tuple((declared[name.lower()], name) for name in named if name.lower() in declared),
        )

    def reshape(self, before: Definition, after: Definition) -> Reshape:
        """How rows of one definition become rows of another definition of the same generation."""
        between = before.fingerprint, after.fingerprint
        if between not in self._reshapes:
            self._reshapes[between] = Reshape.along(before, self._changes(before, after), after)
        return self._reshapes[between]

    def _changes(self, before: Definition, after: Definition) -> Sequence[Change]:
        assert self._definitions is not None
        try:
            return path(self._definitions, before, after)
        except Corrupt:
            # Early revisions do not name the previous one. At that time columns were only added.
            return changes(before, after)

    def _spec(self, definition: Definition) -> TableSpec:
        if definition.fingerprint not in self._specs:
            self._specs[definition.fingerprint] = spec_of(definition)
        return self._specs[definition.fingerprint]

    def recorded_spec(self, snapshot: Snapshot) -> TableSpec | None:
        """The table as the definition declares it that it was prepared for, if there is one."""
        recorded = self._recorded(snapshot)
        return None if recorded is None else self._spec(recorded)

    def _recorded(self, snapshot: Snapshot) -> Definition | None:
        fingerprint = TableState.of(snapshot.metadata).definition
        return None if fingerprint is None or self._definitions is None else self._definitions(fingerprint)

    def _forerunner(self, definition: Definition) -> Definition:
        """The oldest known revision, for tables from before the state named one."""
        while definition.previous is not None and self._definitions is not None:
            definition = self._definitions(definition.previous)
        return definition
