"""The contract of every connector. A connector gets rows as Arrow batches in the table's present shape.

Rows may come more than once, in any order of versions, and a batch may be cut differently the next time. After `write`
returns, the rows are durable in the target, and readers see the greatest version of each key. A delete is a version, too."""

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from millrace.lake.sidecar import StagedFile
from millrace.model.columns import DELETED_COLUMN
from millrace.model.errors import MillraceError
from millrace.model.sinks import Fault, SinkFailed
from millrace.model.table import Definition
from millrace.sink.context import SinkContext

Definitions = Callable[[str], Definition]


@dataclass(frozen=True, slots=True)
class Rows:
    """The accepted rows of some chunks: declared columns of `Work.definition`, then `_version`, `_import`, `_row` and
    `_deleted`. A delete has values only in the key and in the platform's own columns. No key occurs twice. `versions` are
    those of `chunks`. `staged` is a Parquet file of exactly these rows, if one exists that has the definition's shape and
    holds no delete."""

    chunks: tuple[str, ...]
    versions: tuple[int, ...]
    open: Callable[[], Iterator[pa.RecordBatch]]
    staged: tuple[StagedFile, Path] | None = None

    def without(self, known: Container[str]) -> "Rows":
        """The rows of chunks that are not known yet."""
        new = {chunk: version for chunk, version in zip(self.chunks, self.versions, strict=True) if chunk not in known}
        wanted = pa.array(list(new.values()), pa.int64())

        def opened() -> Iterator[pa.RecordBatch]:
            for batch in self.open() if new else ():
                yield batch.filter(pc.is_in(batch["_version"], wanted))

        return Rows(tuple(new), tuple(new.values()), opened)


def fresh(batch: pa.RecordBatch, floor: int, *, is_deleted: bool = False) -> pa.RecordBatch:
    """The rows above the floor, or the deletes above it."""
    deleted = batch[DELETED_COLUMN]
    return batch.filter(pc.and_(deleted if is_deleted else pc.invert(deleted), pc.greater(batch["_version"], floor)))


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be made durable in one target for one table, as one transaction where the target has transactions.

    `floor`: rows of versions up to it are deleted, and are not taken later. `ended`: imports that have ended, each with its
    chunks that hold rows, for sinks that announce complete imports. Some of these chunks may arrive later."""

    definition: Definition
    rows: Sequence[Rows]
    floor: int = 0
    ended: Sequence[tuple[str, tuple[str, ...]]] = ()


def usual_fault(error: BaseException) -> Fault:
    """How far an error reaches that no driver raised."""
    match error:
        case SinkFailed():
            return error.fault
        case MillraceError() | OSError():
            return Fault.SINK
        case ValueError() | TypeError() | OverflowError():
            return Fault.ROW
    return Fault.TABLE


class Connector(Protocol):
    """Made for one target. Its connections live as long as it does. Its `ConnectorSettings` declare what can be set and what
    it can do."""

    def __init__(self, settings: Any, context: SinkContext) -> None:
        """`settings` are an instance of its own model. It connects only to addresses that `context.permitted` returns."""

    # Optional: `plan(before, after) -> list[str]`, a static method: the statements that `prepare` would run. `before` is None
    # if the target does not have the table yet.

    def check(self) -> None:
        """Does what a write will do and leaves no trace. Raises what a write would raise."""

    def prepare(self, definition: Definition, definitions: Definitions) -> None:
        """Brings the target's table to the definition, whatever definition it had before. Idempotent; called
        once for each definition while the connector lives."""

    def write(self, work: Work) -> None:
        """Makes the rows durable. Raises whatever the target raised; `classify` says how far it reaches."""

    def classify(self, error: BaseException) -> Fault:
        """How far the error reaches: a row, the table, or the target."""

    def close(self) -> None: ...
