"""A reject belongs to one replay, amendment or discard; a replay keeps its version, so it must lie above the floor."""

from pyroaring import BitMap64

from millrace.model.imports import COMPLETED, Import
from millrace.model.ops.imports import BeginImport, ImportBegun
from millrace.model.ops.results import OfImport
from millrace.model.ops.rows import DiscardErrors, ReplayErrors
from millrace.model.ops.tables import DefineTable
from simulate.content import bitmap_of
from simulate.watch import Check, Turn, Violation


class EachRejectOnce(Check):
    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self._taken: dict[str, dict[str, BitMap64]] = {}
        self._floor: dict[tuple[str, str], int] = {}

    def applied(self, turn: Turn) -> None:
        self._note_floor(turn)
        op, ended = turn.op, turn.ended
        if ended is not None and ended.of is not None and ended.state != COMPLETED and not self._may_double(ended):
            self._taken.get(ended.of, {}).pop(ended.id, None)
        if not isinstance(op, BeginImport | ReplayErrors | DiscardErrors) or op.of is None or op.rows is None:
            return
        made = turn.answer.result
        if not isinstance(made, OfImport) or (isinstance(made, ImportBegun) and made.repeated):
            return
        rows, others = bitmap_of(op.rows), self._taken.setdefault(op.of, {})
        for other, taken in others.items():
            if taken & rows:
                raise Violation("claims", f"{op.id} and {other} both took rows of {op.of}")
        others[made.import_id] = rows
        imp = turn.admitted
        if (
            imp is not None
            and isinstance(op, ReplayErrors)
            and op.first_version <= self._floor.get((imp.tenant, imp.table), 0)
        ):
            raise Violation("floor", f"{op.id} replays what lies below the table's floor")

    def _may_double(self, imp: Import) -> bool:
        """Not where the same row twice is the same row, nor where the first was written into a life that is over, nor where
        nothing was written."""
        definition = self.world.definitions[imp.definition]
        is_past = definition.floor < self._floor.get((imp.tenant, imp.table), 0)
        return not (definition.table.primary_key or is_past or imp.counts.accepted == 0)

    def _note_floor(self, turn: Turn) -> None:
        for told in turn.told:
            if "floor" in told.data:
                self._floor[turn.op.tenant, turn.op.subject] = told.data["floor"]
        imp = turn.admitted
        if isinstance(turn.op, DefineTable) and imp is not None:
            definition = self.world.definitions[imp.definition]
            name = imp.tenant, imp.table
            self._floor[name] = max(self._floor.get(name, 0), definition.floor)
