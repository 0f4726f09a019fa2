"""The whole matrix: every writer, operation, table and deletion-vector mode; then every reader at every version."""

import re
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from millrace.model.errors import MillraceError
from millrace.model.sinks import SinkFailed
from tests.interop.engine import EngineError
from tests.interop.readers import Engines, Read
from tests.interop.shapes import COLUMNS, NAMES, SHAPES, Shape
from tests.interop.table import MatrixTable, base_table
from tests.interop.writers import IN_TURN, OPERATIONS, VACUUM, Deltalake, Spark, Writer, perform

TAKEN, REFUSED_BY_WRITER, PARKED, FAILED = "taken", "refused by the writer", "parked", "failed"
ALONE = "Millrace alone"
# Refusals that somebody has read and found right, as (outcome, name of the cell). An engine that crashes on a table of ours,
# or a remedy that does not help, must not pass for a refusal.
ACCEPTED: frozenset[tuple[str, str]] = frozenset()
MOST_WORDS = 300
MOST_SHOWN = 3
EARLIER_VERSIONS = 4
_RANDOM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{16,}\b")


@dataclass
class Cell:
    """What became of one operation on one table. `words` is the refusal. `readers` has by reader what it read wrongly:
    nothing if every version was as the model says."""

    writer: str
    operation: str
    shape: str
    mode: str
    outcome: str = TAKEN
    words: str = ""
    versions: int = 0
    readers: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.writer} {self.operation}, {self.shape}, {self.mode}"

    @property
    def is_sound(self) -> bool:
        is_expected = self.outcome == TAKEN or (self.outcome, self.name) in ACCEPTED
        return is_expected and not any(self.readers.values())

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Matrix:
    def __init__(self, engines: Engines, folder: Path) -> None:
        self._engines, self._folder = engines, folder
        self._readers = engines.readers
        # Each engine answers one question after another; they do not wait for each other.
        self._pools = {name: ThreadPoolExecutor(1, name) for name in self._readers}
        self._pending: list[tuple[Cell, str, Future[str]]] = []

    def run(self) -> list[Cell]:
        cells = list(self._cells())
        for cell, reader, future in self._pending:
            cell.readers[reader] = future.result()
        for pool in self._pools.values():
            pool.shutdown()
        return cells

    def _cells(self) -> Iterator[Cell]:
        writers: list[Writer] = [Deltalake(), Spark(self._engines.spark, self._folder)]
        for shape, mode in COLUMNS:
            base, cell = self._base(shape, mode)
            yield cell
            if base is None:
                continue
            for writer, operation in product(writers, operations_of(shape)):
                yield self._operation(base, writer, operation)

    def _base(self, shape: Shape, mode: str) -> tuple[MatrixTable | None, Cell]:
        cell = Cell(ALONE, "", shape.name, mode)
        try:
            base = base_table(self._folder / f"base-{SHAPES.index(shape)}-{mode}", shape, mode)
        except Exception as error:
            cell.outcome, cell.words = _judged(error)
            cell.words = _words(cell.words, self._folder)
            return None, cell
        self._read(cell, base, 0)
        return base, cell

    def _operation(self, base: MatrixTable, writer: Writer, operation: str) -> Cell:
        shape, mode = base.shape, base.mode
        cell = Cell(writer.name, operation, shape.name, mode)
        name = f"{writer.name}-{operation}-{SHAPES.index(shape)}-{mode}".replace(" ", "")
        table = base.copy(self._folder / name)
        try:
            perform(writer, operation, table)
        except Exception as error:
            ours = isinstance(error, MillraceError)
            cell.outcome, cell.words = _judged(error) if ours else (REFUSED_BY_WRITER, str(error))
        if table.version > max(table.seen):
            cell.outcome, cell.words = FAILED, f"It was refused, and yet committed: {cell.words}"
        if cell.outcome in (TAKEN, REFUSED_BY_WRITER):
            try:
                go_on(table)
            except Exception as error:
                cell.outcome, cell.words = _judged(error)
        cell.words = _words(cell.words, table.home)
        # A vacuum must leave what readers of earlier versions need.
        earlier = EARLIER_VERSIONS if operation in (VACUUM, IN_TURN) else 0
        self._read(cell, table, base.version + 1 - earlier)
        return cell

    def _read(self, cell: Cell, table: MatrixTable, first: int) -> None:
        wanted = {version: shown for version, shown in table.seen.items() if version >= first}
        cell.versions = len(wanted)
        for name, read in self._readers.items():
            self._pending.append((cell, name, self._pools[name].submit(_compare, read, table.root, wanted)))


def operations_of(shape: Shape) -> tuple[str, ...]:
    return (IN_TURN,) if shape is NAMES else OPERATIONS


def go_on(table: MatrixTable) -> None:
    """Imports continue: rows of every part, keys that the other writer brought, a repetition, a late import, upkeep."""
    shape = table.shape
    numbers = [*range(18, 34), *range(900, 903), *range(908, 911), *range(70, 74)]
    deletes = [shape.row(number, 0, wide=True)[shape.key] for number in (35, 903, 911)] if shape.key else []
    group = table.imports(1000, [shape.row(number, 1000, wide=True) for number in numbers], deletes)
    table.repeat(group)
    table.imports(900, [shape.row(number, 900, wide=True) for number in (*range(30, 38), 903, 911, 950)])
    table.tidy()
    table.imports(1010, [shape.row(number, 1010, wide=True) for number in (3, 21, 905, 951)])


def _compare(read: Read, root: Path, wanted: Mapping[int, tuple[tuple[str, ...], list[str]]]) -> str:
    """Empty if the reader sees in every version what the model has; else the first difference."""
    for version, (columns, expected) in wanted.items():
        try:
            found = read(root, version, columns)
        except EngineError as error:
            return f"version {version}: {_words(str(error), root)}"
        except BaseException as error:
            # A panic of a library written in Rust is no Exception.
            return f"version {version}: {type(error).__name__}: {_words(str(error), root)}"
        if found != expected:
            missing = [row for row in expected if row not in set(found)][:MOST_SHOWN]
            surplus = [row for row in found if row not in set(expected)][:MOST_SHOWN]
            counts = f"{len(found)} rows instead of {len(expected)}"
            return f"version {version}: {counts}; missing {missing}, surplus {surplus}"
    return ""


def _judged(error: Exception) -> tuple[str, str]:
    """A refusal is in words of ours, with what to do. An error of a library is a failure of ours."""
    cause = error.__cause__ if isinstance(error, SinkFailed) else error
    if isinstance(error, SinkFailed) and cause is None:
        cause = error
    if isinstance(cause, MillraceError) and cause.remedy:
        return PARKED, f"{cause.message} {cause.remedy}"
    return FAILED, f"{type(cause).__name__}: {cause}"


def _words(text: str, place: Path) -> str:
    """The first sentence or so, on one line, without what is another one in every run."""
    said = text.partition("JVM stacktrace")[0].replace(str(place), "")
    return _RANDOM.sub("…", " ".join(said.split()))[:MOST_WORDS]


def clean(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
