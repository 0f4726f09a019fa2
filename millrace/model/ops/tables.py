"""Ops about tables and their sinks."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from millrace.model.ops.base import Need, TableOp, TurnOp, op_kind
from millrace.model.ops.codec import ALWAYS, wire
from millrace.model.ops.results import Result


@dataclass(frozen=True, slots=True)
class TableDefined(Result):
    """`import_id` carries the change to the sinks; there is none if nothing changed."""

    table: str
    revision: int
    generation: int
    definition: str
    changed: bool
    import_id: str | None = field(default=None, metadata=wire("import"))

    @property
    def recheck(self) -> tuple[str, ...]:
        return () if self.import_id is None else (self.import_id,)


@dataclass(frozen=True, slots=True)
class TableEmptied(Result):
    """Every row below the version `floor` goes, in every sink."""

    table: str
    floor: int
    import_id: str = field(metadata=wire("import"))

    @property
    def recheck(self) -> tuple[str, ...]:
        return (self.import_id,)


@dataclass(frozen=True, slots=True)
class TablePurged(TableEmptied):
    purged: bool = field(default=True, init=False, metadata=ALWAYS)


@dataclass(frozen=True, slots=True)
class TableNotPurged(Result):
    """Something happened to the table since the purge was asked for."""

    table: str
    purged: bool = field(default=False, init=False, metadata=ALWAYS)


@dataclass(frozen=True, slots=True)
class TableStatus(Result):
    table: str
    dropped: bool


@dataclass(frozen=True, slots=True)
class SinkWaived(Result):
    """The imports that no longer wait for the sink; it gets no row below the version `below`."""

    sink: str
    waived: tuple[str, ...]
    below: int

    @property
    def recheck(self) -> tuple[str, ...]:
        return self.waived


@dataclass(frozen=True, slots=True)
class SinkNoted(Result):
    sink: str


@op_kind("define_table")
class DefineTable(TurnOp[TableDefined]):
    """`refresh`: the table as it is declared, by the rules that its tenant's agreement has now."""

    declaration: dict[str, Any] | None = None
    new_generation: bool = False
    refresh: bool = False
    NEEDS: ClassVar[frozenset[Need]] = frozenset({Need.TWIN, Need.HISTORY})


@op_kind("truncate_table")
class TruncateTable(TurnOp[TableEmptied]):
    pass


@op_kind("drop_table")
class DropTable(TurnOp[TableStatus]):
    pass


@op_kind("restore_table")
class RestoreTable(TurnOp[TableStatus]):
    pass


@op_kind("purge_table")
class PurgeTable(TableOp[TablePurged | TableNotPurged]):
    """Of a table that was dropped at that moment. It takes no imports, so there is nothing to wait for."""

    dropped_us: int


@op_kind("waive_sink")
class WaiveSink(TableOp[SinkWaived]):
    """`is_draining`: rows are parked for the sink, although the table no longer has it."""

    sink: str
    is_draining: bool = False
    NEEDS: ClassVar[frozenset[Need]] = frozenset({Need.OPEN_IMPORTS})


@op_kind("note_sink")
class NoteSink(TableOp[SinkNoted]):
    """Something was seen of a sink; `what` becomes the type of the event."""

    sink: str
    what: str
    data: dict[str, Any]
