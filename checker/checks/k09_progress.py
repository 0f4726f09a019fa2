"""K9: counts never fall, never exceed their totals, add up, and follow from the facts however those are redelivered."""

import json
import random
from collections import defaultdict
from typing import Any

from checker.findings import Findings
from checker.model import Model
from checker.oplog import PROGRESS, TAIL, topic_of
from checker.terminal import terminal_events

NEVER_FALL = ("read", "accepted", "rejected", "judged", "durable")
Fold = dict[tuple[str, int], tuple[int, int, int, int]]


def check(model: Model) -> Findings:
    found = Findings("K9", "progress")
    _never_falls(model, found)
    _adds_up(model, found)
    _follows_from_facts(model, found)
    return found


def _never_falls(model: Model, found: Findings) -> None:
    """Of two answers about an import, the one asked for after the other was given shows no less."""
    asked: dict[tuple[Any, Any], float] = {}
    answers: dict[str, list[tuple[float, float, dict[str, int]]]] = defaultdict(list)
    for line in sorted(model.dump.history, key=lambda line: line["t_mono"]):
        call = (line["proc"], line["idx"])
        if line["type"] == "invoke":
            asked[call] = line["t_mono"]
        elif line["type"] == "ok" and (line.get("result") or {}).get("counts"):
            answers[line["result"]["import"]].append((asked[call], line["t_mono"], line["result"]["counts"]))
    for import_id, given in answers.items():
        for before, after in _pairs(given):
            fell = [name for name in NEVER_FALL if after.get(name, 0) < before.get(name, 0)]
            found.that(not fell, f"{fell} of {import_id} fell: {before} then {after}")
        for _, _, counts in given:
            whole = counts["accepted"] + counts["rejected"] + counts["ignored"]
            found.that(counts["read"] == whole, f"counts of {import_id} do not add up: {counts}")


def _pairs(given: list[tuple[float, float, dict[str, int]]]) -> list[tuple[dict[str, int], dict[str, int]]]:
    """Each answer with the last one that was complete before it was asked for."""
    pairs = []
    for place, (asked, _, counts) in enumerate(given):
        earlier = [other for other in given[:place] if other[1] <= asked]
        if earlier:
            pairs.append((earlier[-1][2], counts))
    return pairs


def _adds_up(model: Model, found: Findings) -> None:
    for event in terminal_events(model):
        imported = model.imports.get(event["subject"])
        rows = event["data"].get("rows")
        if imported is None or rows is None:
            continue
        well = rows["read"] == rows["accepted"] + rows["rejected"] + rows["ignored"]
        found.that(well, f"the END of {imported.id} does not add up: {rows}")
        found.that(rows == imported.counts, f"the END of {imported.id} says {rows}, the import {imported.counts}")
        sent = imported.sent_rows
        right = rows["read"] == sent if imported.state == "completed" else rows["read"] <= sent
        found.that(right, f"{imported.id} read {rows['read']} of {sent} rows")


def _follows_from_facts(model: Model, found: Findings) -> None:
    texts = topic_of(model.dump.records, TAIL, PROGRESS)["text"].to_list()
    facts = [verdict for text in texts for verdict in _verdicts(json.loads(text))]
    told = fold(facts)
    doubled = facts * 2
    random.Random(7).shuffle(doubled)
    found.that(bool(facts), "no facts were read")
    found.that(fold(doubled) == told, "facts told twice in another order give other counts")
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for (import_id, _), counts in told.items():
        totals[import_id] = [a + b for a, b in zip(totals[import_id], counts, strict=True)]
    for imported in model.imports.values():
        if imported.is_over:
            names = ("read", "accepted", "rejected", "ignored")
            said = [imported.counts.get(name, 0) for name in names]
            found.that(totals[imported.id] == said, f"facts about {imported.id} give {totals[imported.id]}, not {said}")


def _verdicts(fact: dict[str, Any]) -> list[dict[str, Any]]:
    return list(fact["verdicts"]) if fact.get("fact") == "Judged" else []


def fold(verdicts: list[dict[str, Any]]) -> Fold:
    """One entry per chunk; a chunk first passed over and judged after all counts as judged."""
    folded: Fold = {}
    for verdict in verdicts:
        identity = (verdict["import_id"], verdict["number"])
        counts = (verdict["rows"], verdict["accepted"], verdict["rejected"], verdict["ignored"])
        known = folded.get(identity)
        if known is None or (known[3] and not counts[3]):
            folded[identity] = counts
    return folded
