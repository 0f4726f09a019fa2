"""Figures of a run, taken from its dump: how much load, how many faults, how quickly it recovered."""

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np
import polars as pl

from checker.foreign.rounds import DONE
from checker.model import TABLE, Model
from checker.oplog import PROGRESS, SETTLE, TAIL, topic_of
from checker.terminal import is_terminal


@dataclass(frozen=True, slots=True)
class Figures:
    minutes: float
    imports: int
    rows: int
    concurrent_share: float
    schema_changes: int
    kills: dict[str, int]
    faults: dict[str, int]
    unknown: int
    unresolved: int
    recovery: tuple[float, float, float]
    end_latency: tuple[float, float]
    replayed_percent: float
    longest_stall: float
    broken_tables: int = 0
    attacks: int = 0
    foreign_writes: int = 0
    has_other_writers: bool = False


def measure(model: Model) -> Figures:
    over = [imported for imported in model.imports.values() if imported.is_over]
    faults = model.dump.nemesis
    under_load = [fault for fault in faults if fault["signal"] == "KILL" and _open_at(model, fault["t_wall"] * 1000)]
    unknown = [line for line in model.dump.history if line["type"] == "info"]
    known = {key for imported in over for key in imported.keys}
    logged = {op.body.get("idempotency_key") for op in model.ops}
    ends = sorted(h["t_mono"] for h in model.dump.heard if is_terminal(h["event"]) and "t_mono" in h)
    return Figures(
        minutes=float(model.dump.run.get("minutes", 0)),
        imports=len(over),
        rows=sum(imported.counts.get("read", 0) for imported in over),
        concurrent_share=concurrent_share(model),
        schema_changes=model.revisions.changes,
        kills=dict(Counter(fault["target"] for fault in under_load)),
        faults=dict(sorted(Counter(fault["fault"] for fault in faults).items())),
        unknown=len(unknown),
        unresolved=sum(1 for line in unknown if line["idem_key"] in logged - known - {None}),
        recovery=_three(_recoveries(model, ends)),
        end_latency=_three(_latencies(model))[:2],
        replayed_percent=_replayed(model),
        longest_stall=_longest_stall(model, ends),
        broken_tables=sum(1 for fault in faults if fault.get("noticed")),
        attacks=sum(1 for fault in faults if fault.get("attacks")),
        has_other_writers=bool(model.dump.run.get("engines")),
        foreign_writes=sum(1 for operation in model.dump.foreign if operation["outcome"] == DONE),
    )


def _settled_ms(model: Model) -> dict[str, int]:
    return {op.subject: op.at_ms for op in reversed(model.ops) if op.kind == SETTLE}


def _open_at(model: Model, at_ms: float) -> bool:
    settled = _settled_ms(model)
    return any(i.begun_ms <= at_ms <= settled.get(i.id, 1 << 62) for i in model.imports.values())


def concurrent_share(model: Model) -> float:
    """Of the keys written, how many were written by two imports that were open at the same time."""
    settled = _settled_ms(model)
    open_ms = pl.DataFrame(
        [(i.id, i.begun_ms, settled.get(i.id, 1 << 62)) for i in model.imports.values()],
        schema={"import": pl.String, "begun": pl.Float64, "ended": pl.Float64},
        orient="row",
    )
    written = model.rows.filter(pl.col("accepted") & pl.col("keyed")).select(*TABLE, "k", "import").unique()
    if not written.height:
        return 0.0
    spans = written.join(open_ms, on="import").sort("begun")
    overlapping = spans.with_columns(pl.col("ended").cum_max().shift(1).over([*TABLE, "k"]).alias("before")).filter(
        pl.col("begun") < pl.col("before")
    )
    keys = written.select(*TABLE, "k").unique().height
    return overlapping.select(*TABLE, "k").unique().height / keys


def _recoveries(model: Model, ends: list[float]) -> list[float]:
    """Seconds from a kill to the next end of an import."""
    struck = [fault["t_mono"] for fault in model.dump.nemesis if fault["signal"] == "KILL" and "t_mono" in fault]
    return [min(end for end in ends if end > at) - at for at in struck if ends and ends[-1] > at]


def _latencies(model: Model) -> list[float]:
    """Seconds from the answer that all bytes were received to the END that was heard; imports that waited for a broken table
    are left out."""
    answered: dict[str, float] = {}
    for line in model.dump.history:
        if line["type"] == "ok" and line["f"] in ("import", "retry") and line["result"].get("import"):
            answered.setdefault(line["result"]["import"], line["t_wall"])
    heard = {h["event"]["subject"]: h["t_wall"] for h in model.dump.heard if is_terminal(h["event"])}
    waited = _waited_for_broken(model, heard)
    return [max(0.0, heard[each] - at) for each, at in answered.items() if each in heard and each not in waited]


def _waited_for_broken(model: Model, heard: dict[str, float]) -> set[str]:
    damages = [fault for fault in model.dump.nemesis if fault["signal"] == "DAMAGE"]
    return {
        imported.id
        for imported in model.imports.values()
        for fault in damages
        if fault["target"] == f"{imported.tenant}/{imported.table}"
        and imported.op.at_ms / 1000 <= fault["mended_wall"]
        and heard.get(imported.id, 0.0) >= fault["t_wall"]
    }


def _replayed(model: Model) -> float:
    """Rows that were judged more than once, of all judged rows."""
    told: dict[tuple[str, int], int] = defaultdict(int)
    rows: dict[tuple[str, int], int] = {}
    facts = topic_of(model.dump.records, TAIL, PROGRESS)["text"].str.json_decode(dtype=_JUDGED)
    for verdict in facts.struct.field("verdicts").drop_nulls().explode().drop_nulls().to_list():
        told[verdict["import_id"], verdict["number"]] += 1
        rows[verdict["import_id"], verdict["number"]] = verdict["rows"]
    again = sum((times - 1) * rows[chunk] for chunk, times in told.items())
    return 100.0 * again / max(1, sum(rows.values()))


_JUDGED = pl.Struct({"verdicts": pl.List(pl.Struct({"import_id": pl.String, "number": pl.Int64, "rows": pl.Int64}))})


def _longest_stall(model: Model, ends: list[float]) -> float:
    """The longest time without any import ending, while the load lasted."""
    begun, ended = (model.dump.run.get(name) for name in ("load_begun_mono", "load_ended_mono"))
    if begun is None or ended is None:
        return 0.0
    return float(np.max(np.diff([begun, *(end for end in ends if begun < end < ended), ended])))


def _three(values: list[float]) -> tuple[float, float, float]:
    if not values:
        return 0.0, 0.0, 0.0
    return float(np.median(values)), float(np.quantile(values, 0.99)), float(max(values))
