"""Who else writes a table: each operation as deltalake and Spark do it, and what the model makes of it."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

from millrace.arrow.types import arrow_type
from tests.interop.engine import Engine
from tests.interop.known import INT96
from tests.interop.model import Model
from tests.interop.shapes import Row, Shape
from tests.interop.table import MatrixTable

CHANGED = "changed by another"
HOURS = 168
DAY_SECONDS = 86_400
APPEND, UPDATE, DELETE, MERGE, OPTIMIZE, VACUUM = "append", "update", "delete", "merge", "optimize", "vacuum"
SINGLE = (APPEND, UPDATE, DELETE, MERGE, OPTIMIZE, VACUUM)
IN_TURN = "all in turn"
OPERATIONS = (*SINGLE, IN_TURN)
# New keys of an append and of a merge, and keys that the table has.
APPENDED_KEYS, MERGED_KEYS, KNOWN_KEYS = range(900, 908), range(908, 916), range(20, 28)


class Writer(Protocol):
    name: str

    def append(self, root: Path, shape: Shape, rows: pa.Table) -> None: ...
    def update(self, root: Path, shape: Shape) -> None: ...
    def delete(self, root: Path, shape: Shape) -> None: ...
    def merge(self, root: Path, shape: Shape, rows: pa.Table) -> None: ...
    def optimize(self, root: Path, shape: Shape) -> None: ...
    def vacuum(self, root: Path, shape: Shape) -> None: ...


class Deltalake:
    name = "deltalake"

    def append(self, root: Path, shape: Shape, rows: pa.Table) -> None:
        deltalake.write_deltalake(str(root), rows, mode="append", schema_mode="merge")

    def update(self, root: Path, shape: Shape) -> None:
        self._open(root).update({_double(shape.note): f"'{CHANGED}'"}, predicate=f"{_double(shape.part)} = 1")

    def delete(self, root: Path, shape: Shape) -> None:
        self._open(root).delete(f"{_double(shape.part)} = 2")

    def merge(self, root: Path, shape: Shape, rows: pa.Table) -> None:
        on = _double(shape.key or shape.note)
        merger = self._open(root).merge(rows, f"t.{on} = s.{on}", source_alias="s", target_alias="t")
        every = {_double(name): f"s.{_double(name)}" for name in rows.column_names}
        note = _double(shape.note)
        merger.when_matched_update({note: f"s.{note}"}).when_not_matched_insert(every).execute()

    def optimize(self, root: Path, shape: Shape) -> None:
        self._open(root).optimize.compact()

    def vacuum(self, root: Path, shape: Shape) -> None:
        self._open(root).vacuum(HOURS, dry_run=False)

    def _open(self, root: Path) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(str(root))


class Spark:
    """Its own choice for moments, INT96, is misread by others; docs/delta.md tells users to set this one."""

    name = "Spark 4.2"
    timestamps = "TIMESTAMP_MICROS"

    def __init__(self, engine: Engine, scratch: Path) -> None:
        self._engine, self._scratch = engine, scratch

    def append(self, root: Path, shape: Shape, rows: pa.Table) -> None:
        source = self._source(root, rows)
        self._engine.ask("append", root=str(root), source=source, timestamps=self.timestamps)

    def update(self, root: Path, shape: Shape) -> None:
        self._run(f"UPDATE delta.`{root}` SET {_back(shape.note)} = '{CHANGED}' WHERE {_back(shape.part)} = 1")

    def delete(self, root: Path, shape: Shape) -> None:
        self._run(f"DELETE FROM delta.`{root}` WHERE {_back(shape.part)} = 2")

    def merge(self, root: Path, shape: Shape, rows: pa.Table) -> None:
        on, note = _back(shape.key or shape.note), _back(shape.note)
        names = [_back(name) for name in rows.column_names]
        given = ", ".join(f"s.{name}" for name in names)
        self._run(
            f"MERGE INTO delta.`{root}` t USING parquet.`{self._source(root, rows)}` s ON t.{on} = s.{on} "
            f"WHEN MATCHED THEN UPDATE SET {note} = s.{note} "
            f"WHEN NOT MATCHED THEN INSERT ({', '.join(names)}) VALUES ({given})"
        )

    def optimize(self, root: Path, shape: Shape) -> None:
        self._run(f"OPTIMIZE delta.`{root}`")

    def vacuum(self, root: Path, shape: Shape) -> None:
        self._run(f"VACUUM delta.`{root}` RETAIN {HOURS} HOURS")

    def _run(self, statement: str) -> None:
        self._engine.ask("run", statement=statement, timestamps=self.timestamps)

    def _source(self, root: Path, rows: pa.Table) -> str:
        path = self._scratch / f"{root.parents[2].name}.parquet"
        pq.write_table(rows, path)
        return str(path)


class SparkInt96(Spark):
    """As somebody writes who sets nothing."""

    name = INT96
    timestamps = "INT96"


def perform(writer: Writer, operation: str, table: MatrixTable) -> None:
    """Does it to the table, and to the model if the writer did not refuse."""
    for number, single in enumerate(SINGLE if operation == IN_TURN else [operation]):
        if number:
            rows = [table.shape.row(key, 400 + number, wide=True) for key in (number, 24 + number, 901 + number)]
            table.imports(400 + number, rows)
        _perform(writer, single, table)


def _perform(writer: Writer, operation: str, table: MatrixTable) -> None:
    root, shape = table.root, table.shape
    known = [shape.row(number, 700, wide=True) for number in KNOWN_KEYS] if shape.key else []
    new = [shape.row(number, 700, wide=True) for number in APPENDED_KEYS]
    other = [shape.row(number, 700, wide=True) for number in MERGED_KEYS]
    model = table.model
    steps: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
        APPEND: (lambda: writer.append(root, shape, _arrow(table, new)), lambda: model.appended(new)),
        UPDATE: (lambda: writer.update(root, shape), lambda: _update(model, shape)),
        DELETE: (lambda: writer.delete(root, shape), lambda: model.removed(lambda row: row[shape.part] == 2)),
        MERGE: (
            lambda: writer.merge(root, shape, _arrow(table, [*known, *other])),
            lambda: model.merged([*known, *other], shape.note),
        ),
        OPTIMIZE: (lambda: writer.optimize(root, shape), lambda: None),
        VACUUM: (lambda: writer.vacuum(_aged(root), shape), lambda: None),
    }
    do, follow = steps[operation]
    do()
    follow()
    table.note()


def _update(model: Model, shape: Shape) -> None:
    model.updated(lambda row: row[shape.part] == 1, shape.note, CHANGED)


def _arrow(table: MatrixTable, rows: Sequence[Row]) -> pa.Table:
    """The declared columns alone: another writer knows nothing of the platform's own."""
    newest = table.revisions.newest
    assert newest is not None
    return pa.table(
        {column.name: pa.array([row[column.name] for row in rows], arrow_type(column)) for column in newest.columns}
    )


def _aged(root: Path) -> Path:
    """The files are older than the retention. What was removed within it must stay all the same."""
    then = time.time() - 2 * HOURS / 24 * DAY_SECONDS
    for path in root.rglob("*"):
        if path.is_file() and "_delta_log" not in path.parts:
            os.utime(path, (then, then))
    return root


def _double(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _back(name: str) -> str:
    return f"`{name}`"
