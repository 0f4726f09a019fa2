"""What another engine may do to a table that Millrace cannot go on with, and the remedy that the reason names."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.interop.engine import Engine
from tests.interop.model import Model
from tests.interop.outcome import PARKED, RESUMED, Cell, judged
from tests.interop.table import MatrixTable

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Stopper:
    """Statements of Spark, and what the model makes of them. `says` is a part of the reason for which the table is parked."""

    name: str
    does: tuple[str, ...]
    says: str
    remedy: str
    follow: Callable[[Model], None] = lambda _: None


def _all_known(model: Model) -> None:
    model.updated(lambda row: row["note"] is None, "note", UNKNOWN)


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
        "not null, remedy",
        (
            f"UPDATE {{table}} SET note = '{UNKNOWN}' WHERE note IS NULL",
            "ALTER TABLE {table} ALTER COLUMN note SET NOT NULL",
        ),
        "RESTORE TABLE",
        "RESTORE TABLE {table} TO VERSION AS OF {before}",
        _all_known,
    ),
)
BY_NAME = {stopper.name: stopper for stopper in STOPPERS}


def park(engine: Engine, table: MatrixTable, cell: Cell, go_on: Callable[[MatrixTable], None]) -> None:
    """The table must be parked, and go on after the remedy."""
    stopper, before, model = BY_NAME[cell.operation], table.version, table.model.copy()

    def run(statement: str) -> None:
        filled = statement.format(table=f"delta.`{table.root}`", before=before)
        engine.ask("run", statement=filled, timestamps="TIMESTAMP_MICROS")

    for statement in stopper.does:
        run(statement)
    stopper.follow(table.model)
    table.note()
    try:
        go_on(table)
    except Exception as error:
        cell.outcome, cell.words = judged(error)
    if cell.outcome != PARKED or stopper.says not in cell.words:
        cell.words = f"It should have been parked ({stopper.says}): {cell.words}"
        return
    run(stopper.remedy)
    table.model = model
    table.note()
    go_on(table)
    cell.outcome = RESUMED
