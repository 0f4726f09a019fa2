"""deltalake as another writer: an operation in, a commit of its own out."""

from pathlib import Path

import polars as pl
from deltalake import DeltaTable, write_deltalake

from checker.foreign.operations import FIRST_KEY, GIVEN_EVERY, GIVEN_REST, TOUCHED_EVERY, Operation, Rows, named_by_key

HOURS = 168


class DeltalakeWriter:
    name = "deltalake"

    def do(self, location: Path, operation: Operation) -> None:
        table = DeltaTable(str(location))
        match operation.kind:
            case "optimize":
                table.optimize.compact()
            case "vacuum":
                table.vacuum(HOURS, dry_run=False)
            case "touch":
                table.update({"v2": "v2"}, predicate=f"k % {TOUCHED_EVERY} = {operation.rest} AND k < {FIRST_KEY}")
            case "append":
                write_deltalake(table, _frame(table, operation.rows), mode="append", schema_mode="merge")
            case "merge":
                merger = table.merge(_frame(table, operation.rows), "t.k = s.k", source_alias="s", target_alias="t")
                every = {name: f"s.{name}" for name in _frame(table, operation.rows).columns}
                merger.when_matched_update({"w": "s.w"}).when_not_matched_insert(every).execute()
            case "update":
                table.update(
                    {"w": named_by_key(operation.rows)}, predicate=f"k IN ({', '.join(map(str, operation.rows))})"
                )
            case "take":
                table.delete(f"k IN ({', '.join(map(str, operation.keys))})")
            case "delete":
                table.delete(f"k % {GIVEN_EVERY} = {GIVEN_REST} AND k < {FIRST_KEY}")

    def close(self) -> None:
        pass


def _frame(table: DeltaTable, rows: Rows) -> pl.DataFrame:
    """Rows with the first columns alone. `v1` may have been widened."""
    kinds = {field.name: str(getattr(field.type, "type", "")) for field in table.schema().fields}
    number = pl.Int64 if kinds["v1"] == "long" else pl.Int32
    return pl.DataFrame(
        {"k": list(rows), "w": list(rows.values())}, schema={"k": pl.Int64, "w": pl.String}
    ).with_columns(v1=pl.lit(1, number), v2=pl.lit("0"), v3=pl.lit(0.5, pl.Float64), h=pl.lit(0, pl.Int64))
