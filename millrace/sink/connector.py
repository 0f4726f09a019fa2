"""The contract of every sink but Delta's own: rows as Arrow batches in the table's present shape, the last version winning.

Not guaranteed to a sink: that rows come once, that versions rise, that a batch is cut the same way again. Guaranteed by it:
after `write` returns, the rows are durable there and of each key the greatest version is read; a delete is one, too."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from millrace.lake.sidecar import StagedFile
from millrace.model.sinks import Fault
from millrace.model.table import Definition
from millrace.sink.context import SinkContext

Definitions = Callable[[str], Definition]


@dataclass(frozen=True, slots=True)
class Rows:
    """The accepted rows of some chunks: declared columns of `Work.definition`, then `_version`, `_import`, `_row` and
    `_deleted` (of a delete only the key and the platform's own columns are filled). Within it no key occurs twice.
    `versions` are those of `chunks`. `staged` is a Parquet file of these very rows and none of them a delete, if there is one
    that is of the definition's shape."""

    chunks: tuple[str, ...]
    versions: tuple[int, ...]
    open: Callable[[], Iterator[pa.RecordBatch]]
    staged: tuple[StagedFile, Path] | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be made durable in one target for one table, as one transaction where the sink has such a thing.

    `floor`: rows of versions up to it go, and stay away. `ended`: imports that have, each with its chunks that hold rows, for
    sinks that tell their readers what is complete; some of these chunks may still be on their way."""

    definition: Definition
    rows: Sequence[Rows]
    floor: int = 0
    ended: Sequence[tuple[str, tuple[str, ...]]] = ()


class Connector(Protocol):
    """Made for one target, in a process that may write for several; connections live as long as the sink. What can be set
    and what the kind can do is declared by its `ConnectorSettings`."""

    def __init__(self, settings: Any, context: SinkContext) -> None:
        """`settings` are of the connector's own model; hosts are reached as `context.permitted` says."""

    # Optional: `plan(before, after) -> list[str]`, a static method. The statements that `prepare` would run; `before` is None
    # where the table is new there.

    def check(self) -> None:
        """Does what a write will do, without leaving a trace; raises what a write would meet."""

    def prepare(self, definition: Definition, definitions: Definitions) -> None:
        """Brings the target's table to the definition, from whatever it was prepared for before. Idempotent."""

    def write(self, work: Work) -> None:
        """Makes the rows durable. Raises whatever the target raised; `classify` says how far it reaches."""

    def classify(self, error: BaseException) -> Fault:
        """Every error has a reach: a row, the table, or the target."""

    def read_back(self, definition: Definition) -> pa.Table:
        """What a reader sees there, for checks: declared columns and `_version`."""

    def close(self) -> None: ...
