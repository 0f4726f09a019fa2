"""Damages in what is kept: tables, rejected rows, what readers were shown."""

import json

import polars as pl

from checker import flavours, rows
from checker.dump import Dump
from checker.model import Model
from checker.selftest.good_run import LEDGER, ORDERS, TRAIL, VAULT
from checker.selftest.planting import OTHER, TENANT, damage, ended, restore


@damage("a row is gone from a keyed table", "K1")
def _(dump: Dump) -> None:
    certain = {d["id"] for d in dump.imports if d["state"] == "completed"}
    keys = dump.stored[dump.readers[0], TENANT, ORDERS].filter(pl.col("_import").is_in(list(certain)))["k"]
    restore(dump, ORDERS, lambda frame: frame.filter(pl.col("k") != keys[0]))


@damage("a row is gone from a table without key", "K1")
def _(dump: Dump) -> None:
    restore(dump, TRAIL, lambda frame: frame[1:])


@damage("a rejected row is stored", "K2")
def _(dump: Dump) -> None:
    imported = ended(dump, ORDERS)
    row = Model(dump).rows.filter((pl.col("import") == imported["id"]) & ~pl.col("accepted"))[:1]
    cells = rows.cells(row, f"canary-{TENANT}", []).with_columns(
        _version=pl.lit(imported["first_version"]),
        _import=pl.lit(imported["id"]),
        _row=row["row"],
        k=pl.lit(10_000).cast(pl.Int64),
    )
    restore(dump, ORDERS, lambda frame: pl.concat([frame, cells], how="diagonal_relaxed"))


@damage("a row that nobody sent is stored", "K2")
def _(dump: Dump) -> None:
    stranger = pl.col("w").str.replace(r"\d+$", "123")
    restore(dump, ORDERS, lambda frame: pl.concat([frame[:-1], frame[-1:].with_columns(stranger)]))


@damage("a key is there twice", "K3")
def _(dump: Dump) -> None:
    restore(dump, ORDERS, lambda frame: pl.concat([frame, frame[:1]]))


@damage("a row without key is there twice", "K3")
def _(dump: Dump) -> None:
    restore(dump, TRAIL, lambda frame: pl.concat([frame, frame[5:6]]))


@damage("an older row won", "K4")
def _(dump: Dump) -> None:
    model = Model(dump)
    winner = model.table_rows.filter((pl.col("tenant") == TENANT) & (pl.col("table") == ORDERS) & pl.col("certain"))
    mine = model.above_floor.filter((pl.col("tenant") == TENANT) & (pl.col("table") == ORDERS) & ~pl.col("deletes"))
    beaten = mine.join(winner.select("k", pl.col("seq").alias("won")), on="k").filter(pl.col("seq") < pl.col("won"))[:1]
    old = rows.cells(beaten, f"canary-{TENANT}", [])
    version = next(d["first_version"] for d in dump.imports if d["id"] == beaten["import"][0])
    marked = old.with_columns(_version=pl.lit(version), _import=beaten["import"], _row=beaten["place"])
    restore(
        dump, ORDERS, lambda f: pl.concat([f.filter(pl.col("k") != beaten["k"][0]), marked], how="diagonal_relaxed")
    )


@damage("one of two readers sees less", "K4")
def _(dump: Dump) -> None:
    reader = dump.readers[-1]
    dump.stored[reader, TENANT, LEDGER] = dump.stored[reader, TENANT, LEDGER][1:]


@damage("a truncated row is back", "K4")
def _(dump: Dump) -> None:
    first = next(d for d in dump.imports if d["tenant"] == TENANT and d["table"] == "emptied")
    row = Model(dump).rows.filter((pl.col("import") == first["id"]) & pl.col("accepted"))[:1]
    cells = rows.cells(row, f"canary-{TENANT}", []).with_columns(
        _version=pl.lit(first["first_version"]), _import=pl.lit(first["id"]), _row=row["row"]
    )
    restore(
        dump,
        "emptied",
        lambda frame: pl.concat([frame.filter(pl.col("k") != row["k"][0]), cells], how="diagonal_relaxed"),
    )


@damage("one cell comes from another row", "K5")
def _(dump: Dump) -> None:
    def mix(frame: pl.DataFrame) -> pl.DataFrame:
        cells = frame["v2"].to_list()
        cells[0] = cells[1]
        return frame.with_columns(pl.Series("v2", cells))

    restore(dump, ORDERS, mix)


@damage("a new column is filled where nobody sent it", "K5")
def _(dump: Dump) -> None:
    restore(dump, LEDGER, lambda frame: frame.with_columns(pl.col("x1").fill_null(99)))


@damage("a rejected row is not kept", "K10")
def _(dump: Dump) -> None:
    dump.rejected = dump.rejected[1:]


@damage("a rejected row has another reason", "K10")
def _(dump: Dump) -> None:
    other = pl.Series("reasons", [[flavours.spoken("v3", "type")], *dump.rejected["reasons"].to_list()[1:]])
    dump.rejected = dump.rejected.with_columns(other)


@damage("pages come in another order the second time", "K10")
def _(dump: Dump) -> None:
    page = next(page for page in dump.pages if page["reading"] == 2 and len(page["rows"]) > 1)
    page["rows"] = page["rows"][::-1]


@damage("rows were judged by the revision before", "K11")
def _(dump: Dump) -> None:
    widened = next(
        op
        for op in Model(dump).ops
        if op.kind == "define_table" and op.subject == LEDGER and "x1" in json.dumps(op.body)
    )
    dump.ops[:] = [op if op["op"] != widened.id else {**op, "state": "refused"} for op in dump.ops]


@damage("a tenant's row lies in another's table", "K12")
def _(dump: Dump) -> None:
    moved = dump.stored[dump.readers[0], OTHER, TRAIL][:1]
    restore(dump, TRAIL, lambda frame: pl.concat([frame, moved], how="diagonal_relaxed"))


@damage("an answer shows another tenant's row", "K12")
def _(dump: Dump) -> None:
    line = next(line for line in dump.history if line["type"] == "ok" and line["tenant"] == TENANT)
    line["seen"] = [OTHER]


@damage("a record carries another tenant's row", "K12")
def _(dump: Dump) -> None:
    place = pl.col("topic").str.ends_with("raw-input") & (pl.col("offset") == 0)
    dump.records = dump.records.with_columns(pl.when(place).then(pl.lit([OTHER])).otherwise("seen").alias("seen"))


@damage("a reader saw a key go back", "K13")
def _(dump: Dump) -> None:
    readings = [s["snapshot"] for s in dump.snapshots if s["tenant"] == TENANT and s["table"] == ORDERS]
    older = pl.col("snapshot") == readings[-1]
    dump.seen_rows = dump.seen_rows.with_columns(pl.when(older).then(1).otherwise("_version").alias("_version"))


@damage("a row of a cancelled atomic import is shown", "K2")
def _(dump: Dump) -> None:
    cancelled = ended(dump, VAULT, "cancelled")
    row = Model(dump).rows.filter((pl.col("import") == cancelled["id"]) & pl.col("passes"))[:1]
    cells = rows.cells(row, f"canary-{TENANT}", []).with_columns(
        _version=pl.lit(cancelled["first_version"]), _import=pl.lit(cancelled["id"]), _row=row["place"]
    )
    restore(dump, VAULT, lambda f: pl.concat([f.filter(pl.col("k") != row["k"][0]), cells], how="diagonal_relaxed"))


@damage("a streamed row is there twice", "K3")
def _(dump: Dump) -> None:
    model = Model(dump)
    appended = next(i for i in model.imports.values() if i.is_append and i.tenant == TENANT and i.table == TRAIL)
    restore(dump, TRAIL, lambda frame: pl.concat([frame, frame.filter(pl.col("_import") == appended.id)[-1:]]))


@damage("a deleted key came back", "K4")
def _(dump: Dump) -> None:
    model = Model(dump)
    mine = (pl.col("tenant") == TENANT) & (pl.col("table") == ORDERS)
    gone = model.winners.filter(mine & pl.col("deletes"))
    revived = model.above_floor.filter(
        mine & ~pl.col("deletes") & pl.col("k").is_in(gone["k"].implode()) & pl.col("certain")
    )[:1]
    version = next(d["first_version"] for d in dump.imports if d["id"] == revived["import"][0])
    cells = rows.cells(revived, f"canary-{TENANT}", []).with_columns(
        _version=pl.lit(version), _import=revived["import"], _row=revived["place"]
    )
    restore(dump, ORDERS, lambda frame: pl.concat([frame, cells], how="diagonal_relaxed"))


@damage("a table could not be read for a moment", "K13")
def _(dump: Dump) -> None:
    dump.snapshots[-1]["error"] = "DeltaError: a file is gone"
