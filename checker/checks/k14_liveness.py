"""K14: some time after the last fault everything has ended: imports, ops, spans; no lag, nothing unsent."""

from collections import defaultdict

from checker.dump import Document
from checker.findings import Findings
from checker.model import Model
from checker.terminal import on_topic


def check(model: Model) -> Findings:
    found = Findings("K14", "liveness")
    for imported in model.imports.values():
        found.that(imported.is_over, f"import {imported.id} ({imported.keys[:3]}) is still {imported.state}")
    for op in model.dump.ops:
        found.that(_is_evaluated(op), f"op {op['op']} is still {op['state']}")
    for span in model.dump.spans:
        found.that(span["state"] in ("ended", "aborted"), f"span {span['name']} is still {span['state']}")
    for name, value in model.dump.run.get("lags", {}).items():
        found.that(value == 0, f"{name} is {value}")
    published = {event["id"] for event in on_topic(model)}
    for event in model.dump.events:
        found.that(event["id"] in published, f"event {event['id']} never reached the topic")
    _unsettled(model, found)
    return found


def _is_evaluated(op: Document) -> bool:
    """An op that repeats one which waits stands for that one."""
    return op["state"] in ("applied", "refused") or bool((op.get("result") or {}).get("as"))


def _unsettled(model: Model, found: Findings) -> None:
    """Requests whose outcome was unknown are settled by the log: not there, refused there, or an import."""
    known = {key for imported in model.imports.values() for key in imported.keys}
    refused = {op["op"] for op in model.dump.ops if op["state"] == "refused" or (op.get("result") or {}).get("as")}
    asked: dict[str, list[str]] = defaultdict(list)
    for op in model.ops:
        if op.body.get("idempotency_key"):
            asked[op.body["idempotency_key"]].append(op.id)
    for line in model.dump.history:
        key = line.get("idem_key")
        if line["type"] == "info" and key:
            well = key in known or refused.issuperset(asked[key])
            found.that(well, f"the unknown request {key} is in the log without an outcome")
