"""The whole matrix: every writer, operation, table and deletion-vector mode; then every reader at every version."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path

from millrace.model.errors import MillraceError
from tests.interop.comparing import compare, compare_counts
from tests.interop.filters import FILTERED, PRUNED, Filters, filters_of, one_file_of_many, pruned_filters
from tests.interop.outcome import ALONE, FAILED, REFUSED_BY_WRITER, RESUMED, TAKEN, Cell, brief, judged
from tests.interop.parking import STOPPERS, park
from tests.interop.readers import Engines, Reader
from tests.interop.shapes import COLUMNS, NAMES, SHAPES, TEXT_KEY, Shape
from tests.interop.table import MatrixTable, base_table
from tests.interop.writers import IN_TURN, OPERATIONS, VACUUM, Deltalake, Spark, SparkInt96, Writer, perform

EARLIER_VERSIONS = 4

Told = Callable[[Cell], None]
Question = Callable[[str, Reader], str]


class Matrix:
    """`told` gets each cell as soon as all readers are done with it. `only`: parts of the names of the wanted cells."""

    def __init__(self, engines: Engines, folder: Path, told: Told = lambda _: None, only: Sequence[str] = ()) -> None:
        self._engines, self._folder, self._told, self._only = engines, folder, told, only
        self._readers = engines.readers
        spark = engines.spark
        writers: list[Writer] = [Deltalake(), Spark(spark, folder), SparkInt96(spark, folder)]
        self._writers = {writer.name: writer for writer in writers}
        # The engines do not wait for each other.
        self._pools = {name: ThreadPoolExecutor(reader.at_once, name) for name, reader in self._readers.items()}
        self._pending: list[Future[None]] = []
        self._telling = threading.Lock()

    def run(self) -> list[Cell]:
        cells = list(self._cells())
        for future in self._pending:
            future.result()
        for pool in self._pools.values():
            pool.shutdown()
        return cells

    def _cells(self) -> Iterator[Cell]:
        for shape, mode, cells in planned():
            wanted = [cell for cell in cells if not self._only or any(part in cell.name for part in self._only)]
            if wanted:
                yield from self._column(shape, mode, wanted)

    def _column(self, shape: Shape, mode: str, cells: Sequence[Cell]) -> Iterator[Cell]:
        try:
            base = base_table(self._folder / f"base-{SHAPES.index(shape)}-{mode}", shape, mode)
        except Exception as error:
            outcome, words = judged(error)
            yield from (replace(cell, outcome=outcome, words=brief(words, self._folder)) for cell in cells)
            return
        for cell in cells:
            if cell.intended == RESUMED:
                self._park(base, cell)
            elif cell.writer != ALONE:
                self._operation(base, self._writers[cell.writer], cell)
            elif cell.operation == FILTERED:
                self._count(cell, base.root, filters_of(base))
            elif cell.operation == PRUNED:
                self._count(cell, one_file_of_many(self._folder / f"pruned-{mode}", mode), pruned_filters())
            else:
                self._read(cell, base, 0)
            yield cell

    def _copy(self, base: MatrixTable, cell: Cell) -> MatrixTable:
        name = f"{cell.writer}-{cell.operation}-{SHAPES.index(base.shape)}-{base.mode}"
        return base.copy(self._folder / name.replace(" ", "").replace(",", "-"))

    def _park(self, base: MatrixTable, cell: Cell) -> None:
        table = self._copy(base, cell)
        try:
            park(self._engines.spark, table, cell, go_on)
        except Exception as error:
            cell.outcome, cell.words = FAILED, f"{type(error).__name__}: {error}"
        cell.words = brief(cell.words, table.home)
        self._read(cell, table, base.version + 1)

    def _operation(self, base: MatrixTable, writer: Writer, cell: Cell) -> None:
        operation, table = cell.operation, self._copy(base, cell)
        try:
            perform(writer, operation, table)
        except Exception as error:
            ours = isinstance(error, MillraceError)
            cell.outcome, cell.words = judged(error) if ours else (REFUSED_BY_WRITER, str(error))
        if table.version > max(table.seen):
            cell.outcome, cell.words = FAILED, f"It was refused, and yet committed: {cell.words}"
        if cell.outcome in (TAKEN, REFUSED_BY_WRITER):
            try:
                go_on(table)
            except Exception as error:
                cell.outcome, cell.words = judged(error)
        cell.words = brief(cell.words, table.home)
        # A vacuum must leave what readers of earlier versions need.
        earlier = EARLIER_VERSIONS if operation in (VACUUM, IN_TURN) else 0
        self._read(cell, table, base.version + 1 - earlier)

    def _read(self, cell: Cell, table: MatrixTable, first: int) -> None:
        wanted = {version: shown for version, shown in table.seen.items() if version >= first}
        cell.versions = len(wanted)
        self._ask(cell, lambda name, reader: compare(reader, table.root, wanted, cell.fault(name)))

    def _count(self, cell: Cell, root: Path, expected: Filters) -> None:
        cell.versions = 1
        self._ask(cell, lambda _, reader: compare_counts(reader, root, expected))

    def _ask(self, cell: Cell, question: Question) -> None:
        for name in self._readers:
            self._pending.append(self._pools[name].submit(self._note, cell, name, question))

    def _note(self, cell: Cell, name: str, question: Question) -> None:
        words = question(name, self._readers[name])
        with self._telling:
            cell.readers[name] = words
            if len(cell.readers) == len(self._readers):
                self._told(cell)


def planned() -> list[tuple[Shape, str, list[Cell]]]:
    """The cells of a run, by table and mode."""
    return [(shape, mode, list(_cells(shape, mode))) for shape, mode in COLUMNS]


def _cells(shape: Shape, mode: str) -> Iterator[Cell]:
    rows = [(ALONE, ""), *product((Deltalake.name, Spark.name), (IN_TURN,) if shape is NAMES else OPERATIONS)]
    if shape is TEXT_KEY:
        # What deltalake and polars make of INT96 is known; one table shows that Millrace and the others read it.
        rows += [(SparkInt96.name, IN_TURN), (ALONE, FILTERED), (ALONE, PRUNED)]
    yield from (Cell(*row, shape.name, mode) for row in rows)
    if shape is TEXT_KEY and mode == "auto":
        yield from (Cell(Spark.name, stopper.name, shape.name, mode, intended=RESUMED) for stopper in STOPPERS)


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
