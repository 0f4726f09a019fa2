"""Damages in what was told: the topics, the counts, the ends."""

import json
from typing import Any

import polars as pl

from checker.dump import Dump
from checker.model import Model
from checker.selftest.good_run import ORDERS, TRAIL
from checker.selftest.planting import TENANT, damage, end_of, ended, restore, rewrite


@damage("two ops stand in the wrong order", "K6")
def _(dump: Dump) -> None:
    ops = {op.id: op for op in Model(dump).ops if op.kind == "begin_import" and op.tenant == TENANT}
    one, _, other = list(ops)[:3]
    swapped = {one: json.loads(_text(ops[other])), other: json.loads(_text(ops[one]))}
    rewrite(dump, "table-ops", lambda said: swapped.get(said["id"]))


def _text(op: Any) -> str:
    return json.dumps({"id": op.id, "kind": op.kind, "tenant": op.tenant, "subject": op.subject, "body": op.body})


@damage("an op is missing from the log", "K6")
def _(dump: Dump) -> None:
    dump.records = dump.records.filter(~(pl.col("topic").str.ends_with("table-ops") & (pl.col("offset") == 5)))


@damage("a repeated request made a second import", "K6")
def _(dump: Dump) -> None:
    repeated = next(line for line in dump.history if line["f"] == "retry" and line["type"] == "ok")
    repeated["result"] = {**repeated["result"], "import": "imp_999"}


@damage("the last chunk never reached the topic", "K7")
def _(dump: Dump) -> None:
    last = dump.records.filter(pl.col("topic").str.ends_with("raw-input"))["offset"].max()
    dump.records = dump.records.filter(~(pl.col("topic").str.ends_with("raw-input") & (pl.col("offset") == last)))


@damage("a second reading shows another value", "K7")
def _(dump: Dump) -> None:
    here = (pl.col("reader") == "second") & (pl.col("topic").str.ends_with("events")) & (pl.col("offset") == 3)
    dump.records = dump.records.with_columns(pl.when(here).then(pl.lit("other")).otherwise("digest").alias("digest"))


@damage("END came before the last row was readable", "K8")
def _(dump: Dump) -> None:
    snapshot = next(s for s in dump.snapshots if s["table"] == TRAIL and _is_certain(dump, s["ended"][0]))
    mine = pl.col("snapshot") == snapshot["snapshot"]
    last = pl.col("_row") == dump.seen_rows.filter(mine)["_row"].max()
    dump.seen_rows = dump.seen_rows.filter(~(mine & last))


def _is_certain(dump: Dump, import_id: str) -> bool:
    return any(d["id"] == import_id and d["state"] == "completed" for d in dump.imports)


@damage("END came before its chunks were durable", "K8")
def _(dump: Dump) -> None:
    later = pl.col("topic").str.ends_with("progress") & pl.col("text").str.contains("Durable")
    dump.records = dump.records.with_columns(
        pl.when(later).then(pl.col("at_ms") + 1000).otherwise("at_ms").alias("at_ms")
    )


@damage("an import ended twice", "K8")
def _(dump: Dump) -> None:
    event = end_of(dump, ended(dump, ORDERS)["id"])
    dump.events.append({**event, "id": event["id"] + ".again"})


@damage("an END counts one row too many", "K9")
def _(dump: Dump) -> None:
    data = end_of(dump, ended(dump, ORDERS)["id"])["data"]
    data["rows"] = {**data["rows"], "accepted": data["rows"]["accepted"] + 1, "read": data["rows"]["read"] + 1}


@damage("a count fell between two answers", "K9")
def _(dump: Dump) -> None:
    imported = ended(dump, ORDERS)["id"]
    answers = [line for line in dump.history if line["f"] == "status" and line["type"] == "ok"]
    last = next(line for line in answers if line["result"]["import"] == imported)
    fallen = {"import": imported, "counts": dict.fromkeys(last["result"]["counts"], 0)}
    asked, answered = last["t_mono"] + 1, last["t_mono"] + 2
    dump.history.append({**last, "idx": -1, "type": "invoke", "t_mono": asked, "result": None})
    dump.history.append({**last, "idx": -1, "t_mono": answered, "result": fallen})


@damage("a verdict was never told", "K9")
def _(dump: Dump) -> None:
    offsets = dump.records.filter(pl.col("topic").str.ends_with("progress") & pl.col("text").str.contains("Judged"))[
        "offset"
    ]
    dump.records = dump.records.filter(~(pl.col("topic").str.ends_with("progress") & (pl.col("offset") == offsets[0])))


@damage("an import never ended", "K14")
def _(dump: Dump) -> None:
    imported = ended(dump, TRAIL)
    imported["state"] = "processing"


@damage("what had ended was lost in a kill", "K15")
def _(dump: Dump) -> None:
    restore(dump, TRAIL, lambda frame: frame[3:])


@damage("an end was never told", "K16")
def _(dump: Dump) -> None:
    imported = ended(dump, ORDERS)["id"]
    dump.heard[:] = [
        h for h in dump.heard if not (h["event"]["subject"] == imported and h["event"]["type"].endswith("completed"))
    ]


@damage("a span ended before one of its imports", "K8")
def _(dump: Dump) -> None:
    member = next(d for d in dump.imports if d["tenant"] == TENANT and d["span"])
    ends = pl.col("topic").str.ends_with("events") & pl.col("text").str.contains(f"settle_{member['id']}")
    last = int(str(dump.records.filter(pl.col("topic").str.ends_with("events"))["offset"].max())) + 100
    dump.records = dump.records.with_columns(pl.when(ends).then(last).otherwise("offset").alias("offset"))


@damage("an END after a truncate while its rows are still shown", "K8")
def _(dump: Dump) -> None:
    truncated = next(op["op"] for op in dump.ops if op["kind"] == "truncate_table")
    emptied = next(s for s in dump.snapshots if s["ended"] == [truncated])
    before = next(s for s in dump.snapshots if s["table"] == "emptied" and s["tenant"] == emptied["tenant"])
    shown = dump.seen_rows.filter(pl.col("snapshot") == before["snapshot"])
    dump.seen_rows = pl.concat(
        [dump.seen_rows, shown.with_columns(pl.lit(emptied["snapshot"], pl.Int64).alias("snapshot"))]
    )


@damage("a webhook is signed with another secret", "K16")
def _(dump: Dump) -> None:
    dump.webhooks[0]["secret"] = "whsec_b3RoZXI="


@damage("an op was never evaluated", "K14")
def _(dump: Dump) -> None:
    dump.ops[-1]["state"] = "requested"
