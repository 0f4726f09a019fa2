"""K8: what an END announces was readable when it was heard; one END per import, behind everything that it sums up."""

import json
from collections import defaultdict

import polars as pl

from checker.checks.spans import check_spans
from checker.findings import Findings
from checker.model import TABLE, Model, newest
from checker.oplog import PROGRESS, TAIL, topic_of
from checker.terminal import on_topic, terminal_events

LENIENT_MS = 1


def check(model: Model) -> Findings:
    found = Findings("K8", "END truth")
    _readable(model, found)
    _one_end(model, found)
    _behind_the_end_op(model, found)
    _in_order(model, found)
    _behind_its_facts(model, found)
    check_spans(model, found)
    return found


def _readable(model: Model, found: Findings) -> None:
    """The first reading after an END shows what it announces: rows are there, deleted and truncated ones are not."""
    readings = model.dump.seen_rows.partition_by("snapshot", as_dict=True)
    places = {imported.id: imported.seq for imported in model.imports.values()}
    for snapshot in (each for each in model.dump.snapshots if "error" not in each):
        seen = readings.get((snapshot["snapshot"],), model.dump.seen_rows.clear()).select(
            "k", pl.col("_import").alias("has_import"), pl.col("_row").alias("has_place"),
            pl.col("_import").replace_strict(places, default=None, return_dtype=pl.Int64).alias("has"),
        )  # fmt: skip
        accepted = model.rows_of(snapshot["ended"]).filter(pl.col("certain") & pl.col("accepted"))
        certain = accepted.filter(~pl.col("deletes"))
        where = f"reading {snapshot['snapshot']} of {snapshot['tenant']}/{snapshot['table']}"
        keyless = [snapshot["tenant"], snapshot["table"]] in model.dump.run.get("keyless", [])
        missing = _missing_rows(certain, seen) if keyless else _missing_keys(certain, seen)
        missing = _not_taken_away(model, missing)
        found.none_of(missing.select("import", "place", "k"), certain.height, f"ended, but not in {where}")
        deletes = newest(accepted).filter("deletes").join(seen, on="k").filter(_OLDER)
        deletes = deletes.join(model.given, on=[*TABLE, "k"], how="anti")
        found.none_of(
            deletes.select("import", "k", "has"), accepted.height - certain.height, f"deleted, but in {where}"
        )
        for op in (model.truncates[each] for each in snapshot["ended"] if each in model.truncates):
            kept = seen.filter(pl.col("has") < op.seq)
            found.none_of(kept.select("k", "has_import"), max(1, seen.height), f"truncated, but in {where}")


_OLDER = (pl.col("has") < pl.col("seq")) | ((pl.col("has") == pl.col("seq")) & (pl.col("has_place") < pl.col("place")))


def _missing_rows(certain: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
    return certain.join(seen, left_on=["import", "place"], right_on=["has_import", "has_place"], how="anti")


def _missing_keys(certain: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
    return newest(certain).join(seen, on="k", how="left").filter(pl.col("has").is_null() | _OLDER)


def _not_taken_away(model: Model, short: pl.DataFrame) -> pl.DataFrame:
    """A delete or a truncate behind the row may already have taken it, whether or not it has ended; so may another engine."""
    if not short.height:
        return short
    deletes = model.rows.filter(pl.col("deletes")).group_by([*TABLE, "k"]).agg(pl.col("seq").max().alias("gone"))
    floors = model.floors.rename({"floor": "emptied"})
    excused = short.join(deletes, on=[*TABLE, "k"], how="left").join(floors, on=TABLE, how="left")
    taken = (pl.col("gone").fill_null(-1) >= pl.col("seq")) | (pl.col("emptied").fill_null(-1) > pl.col("seq"))
    return excused.filter(~taken).join(model.given, on=[*TABLE, "k"], how="anti")


def _one_end(model: Model, found: Findings) -> None:
    ids: dict[str, set[str]] = defaultdict(set)
    for event in terminal_events(model):
        ids[event["subject"]].add(event["id"])
    for imported in model.imports.values():
        expected = 1 if imported.is_over else 0
        found.that(
            len(ids[imported.id]) == expected,
            f"import {imported.id} ({imported.state}) has the ENDs {sorted(ids[imported.id])}",
        )


def _behind_the_end_op(model: Model, found: Findings) -> None:
    """A completed import was received whole before it ended; positions in the log decide."""
    settled = {op.subject: op.seq for op in reversed(model.ops) if op.kind == "settle_import"}
    for imported in model.imports.values():
        if imported.state == "completed" and imported.id in settled and not imported.is_append:
            end = model.ends.get(imported.id)
            well = end is not None and imported.seq < end.seq < settled[imported.id]
            found.that(well, f"import {imported.id} completed without or before its end op")


def _in_order(model: Model, found: Findings) -> None:
    """On the events topic: admitted, then received, then the END."""
    rank = {"admitted": 0, "received": 1, "stopping": 1, "completed": 2, "failed": 2, "cancelled": 2}
    told: dict[str, list[int]] = defaultdict(list)
    seen: set[str] = set()
    for event in on_topic(model):
        word = event["type"].rsplit(".", 1)[-1]
        if word in rank and event["id"] not in seen:
            seen.add(event["id"])
            told[event["subject"]].append(rank[word])
    for imported in model.imports.values():
        ranks = told[imported.id]
        found.that(bool(ranks) and ranks == sorted(ranks), f"events of {imported.id} in the order {ranks}")


def _behind_its_facts(model: Model, found: Findings) -> None:
    """Every chunk's verdict and its durability in every sink were on `progress` before the end was asked for."""
    settled = {op.subject: op.at_ms for op in reversed(model.ops) if op.kind == "settle_import"}
    first: dict[tuple[str, str, int], int] = {}
    for at_ms, text in topic_of(model.dump.records, TAIL, PROGRESS).select("at_ms", "text").iter_rows():
        for identity in _identities(json.loads(text)):
            first[identity] = min(first.get(identity, at_ms), at_ms)
    for imported in model.imports.values():
        if imported.state == "completed" and imported.id in settled and imported.id in model.chunks:
            wanted = [
                (stage, imported.id, number)
                for number in range(model.chunks[imported.id])
                for stage in ("judged", *imported.document.get("sinks", {}))
            ]
            late = [each for each in wanted if first.get(each, 1 << 62) > settled[imported.id] + LENIENT_MS]
            found.that(not late, f"the END of {imported.id} does not wait for {late[:3]}")


def _identities(fact: dict[str, object]) -> list[tuple[str, str, int]]:
    if fact.get("fact") == "Judged":
        verdicts: list[dict[str, object]] = fact["verdicts"]  # type: ignore[assignment]
        return [("judged", str(v["import_id"]), int(str(v["number"]))) for v in verdicts]
    if fact.get("fact") == "Durable":
        chunks: list[tuple[str, int]] = fact["chunks"]  # type: ignore[assignment]
        return [(str(fact["sink"]), import_id, number) for import_id, number in chunks]
    return []
