"""K6: the log has no holes; what was answered before something else was asked stands before it; a key is one import."""

from collections import defaultdict

import polars as pl

from checker.findings import Findings
from checker.model import Model
from checker.oplog import DEFINE, FULL_READS, TABLE_OPS, topic_of

Interval = tuple[float, float]
NEVER = float("inf")
ASKING = ("import", "retry", "upload", "stream")


def check(model: Model) -> Findings:
    found = Findings("K6", "op order")
    _dense(model, found)
    _one_import_per_key(model, found)
    _real_time(model, found)
    return found


def _dense(model: Model, found: Findings) -> None:
    places = topic_of(model.dump.records, FULL_READS[0], TABLE_OPS).select("partition", "offset")
    gaps = places.with_columns(pl.col("offset").diff().over("partition").alias("step")).filter(pl.col("step") != 1)
    found.none_of(gaps, places.height, "a hole in the log")
    found.that(places.height > 0, "the log is empty")


def _one_import_per_key(model: Model, found: Findings) -> None:
    answered: dict[str, set[str]] = defaultdict(set)
    for line in model.dump.history:
        if line["type"] == "ok" and line["f"] in ASKING and line["result"].get("import"):
            answered[line["idem_key"]].add(line["result"]["import"])
    logged: dict[str, set[str]] = defaultdict(set)
    for imported in model.imports.values():
        for key in imported.keys:
            logged[key].add(imported.id)
    for key in answered.keys() | logged.keys():
        everything = answered[key] | logged[key]
        found.that(len(everything) == 1, f"key {key} is the imports {sorted(everything)}")


def _real_time(model: Model, found: Findings) -> None:
    by_tenant: dict[str, list[tuple[int, Interval, str]]] = defaultdict(list)
    for seq, tenant, interval, what in _placed(model):
        by_tenant[tenant].append((seq, interval, what))
    for tenant, placed in by_tenant.items():
        earliest_answer, later = NEVER, ""
        for _seq, (asked, answered), what in sorted(placed, reverse=True):
            found.that(
                earliest_answer >= asked,
                f"{tenant}: {later} was answered before {what} was asked, and stands behind it",
            )
            if answered < earliest_answer:
                earliest_answer, later = answered, what


def _placed(model: Model) -> list[tuple[int, str, Interval, str]]:
    """Ops with their place in the log and the time between the first request for them and the first answer."""
    by_key, by_result = _intervals(model)
    placed = []
    for imported in model.imports.values():
        for interval in (by_key[key] for key in imported.keys if key in by_key):
            placed.append((imported.seq, imported.tenant, interval, f"import {imported.id}"))
    for op in model.ops:
        digest = op.kind == DEFINE and (op.tenant, op.subject, _revision(model, op.id))
        if digest in by_result:
            placed.append((op.seq, op.tenant, by_result[digest], f"definition {op.id}"))
    return placed


def _revision(model: Model, op_id: str) -> int | None:
    result = next((op["result"] for op in model.dump.ops if op["op"] == op_id and op["state"] == "applied"), None)
    return None if not result or not result.get("changed") else int(result["revision"])


def _intervals(model: Model) -> tuple[dict[str, Interval], dict[object, Interval]]:
    """By idempotency key; and for definitions, which have none, by the revision that they made."""
    asked: dict[tuple[object, object], dict[str, object]] = {}
    by_key: dict[str, Interval] = {}
    by_result: dict[object, Interval] = {}
    for line in sorted(model.dump.history, key=lambda line: line["t_mono"]):
        call = (line["proc"], line["idx"])
        if line["type"] == "invoke":
            asked[call] = line
            if line.get("idem_key"):
                by_key.setdefault(line["idem_key"], (line["t_mono"], NEVER))
        elif line["type"] == "ok" and call in asked:
            key, result = line.get("idem_key"), line.get("result") or {}
            if key:
                begun, answered = by_key[key]
                by_key[key] = (begun, min(answered, line["t_mono"]))
            elif line["f"] == "define" and result.get("changed"):
                at = float(str(asked[call]["t_mono"]))
                by_result[line["tenant"], line["table"], result["revision"]] = (at, line["t_mono"])
    return by_key, by_result
