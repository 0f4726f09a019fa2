"""What somebody has looked at and found to be no fault of ours. Everything else that differs from the model is a failure."""

from dataclasses import dataclass

INT96 = "Spark 4.2 with INT96"
# Refusals that are right, as (outcome, name of the cell). An engine that crashes on a table of ours, or a remedy that does
# not help, must not pass for a refusal.
ACCEPTED: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Fault:
    """What a reader makes of these columns in files of another engine. All other columns must be right, and a fault that
    does not show any more must leave the list."""

    columns: tuple[str, ...]
    words: str


_REMEDY = "Set `spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS` in every Spark session that writes the table."
FAULTS = {
    (INT96, "deltalake"): Fault(
        ("at",),
        f"deltalake reads moments before 1677 and after 2262 in Spark's INT96 as others: 9999 is 1816. {_REMEDY}",
    ),
    (INT96, "polars"): Fault(
        ("at",), f"polars reads moments before 1677 and after 2262 in Spark's INT96 as the year 2262. {_REMEDY}"
    ),
}
