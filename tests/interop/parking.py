"""What another engine may do to a table that Millrace cannot go on with, and the remedy that the reason names."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.interop.engine import Engine
from tests.interop.outcome import PARKED, RESUMED, Cell, judged
from tests.interop.table import MatrixTable


@dataclass(frozen=True)
class Stopper:
    """Statements of Spark that change no row. `says` is a part of the reason for which the table is parked."""

    name: str
    does: tuple[str, ...]
    says: str
    remedy: str


STOPPERS = (
    Stopper(
        "constraint, remedy",
        ("ALTER TABLE {table} ADD CONSTRAINT few CHECK (part < 100)",),
        "DROP CONSTRAINT",
        "ALTER TABLE {table} DROP CONSTRAINT few",
    ),
    Stopper(
        "default, remedy",
        (
            "ALTER TABLE {table} SET TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
            "ALTER TABLE {table} ALTER COLUMN note SET DEFAULT 'none'",
        ),
        "DROP DEFAULT",
        "ALTER TABLE {table} ALTER COLUMN note DROP DEFAULT",
    ),
    Stopper(
        "append only, remedy",
        ("ALTER TABLE {table} SET TBLPROPERTIES ('delta.appendOnly' = 'true')",),
        "UNSET TBLPROPERTIES",
        "ALTER TABLE {table} UNSET TBLPROPERTIES ('delta.appendOnly')",
    ),
    Stopper(
        "partitions, remedy",
        ("CREATE OR REPLACE TABLE {table} USING delta PARTITIONED BY (part) AS SELECT * FROM {table}",),
        "RESTORE TABLE",
        "RESTORE TABLE {table} TO VERSION AS OF {before}",
    ),
)
BY_NAME = {stopper.name: stopper for stopper in STOPPERS}


def park(engine: Engine, table: MatrixTable, cell: Cell, go_on: Callable[[MatrixTable], None]) -> None:
    """The table must be parked, and go on after the remedy."""
    stopper, before = BY_NAME[cell.operation], table.version

    def run(statement: str) -> None:
        filled = statement.format(table=f"delta.`{table.root}`", before=before)
        engine.ask("run", statement=filled, timestamps="TIMESTAMP_MICROS")

    for statement in stopper.does:
        run(statement)
    table.note()
    try:
        go_on(table)
    except Exception as error:
        cell.outcome, cell.words = judged(error)
    if cell.outcome != PARKED or stopper.says not in cell.words:
        cell.words = f"It should have been parked ({stopper.says}): {cell.words}"
        return
    run(stopper.remedy)
    table.note()
    go_on(table)
    cell.outcome = RESUMED
