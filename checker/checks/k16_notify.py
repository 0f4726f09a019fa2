"""K16: the end of each import reaches whoever listens, under one id; webhooks arrive signed."""

import base64
import hashlib
import hmac
from collections import defaultdict
from typing import Any

from checker.findings import Findings
from checker.model import Model
from checker.terminal import is_terminal, on_topic


def check(model: Model) -> Findings:
    found = Findings("K16", "notify")
    ways = {
        "the topic": on_topic(model),
        "the API": model.dump.events,
        "the stream": [h["event"] for h in model.dump.heard],
    }
    if "webhooks" in model.dump.run.get("capabilities", []):
        ways["webhooks"] = [each["event"] for each in model.dump.webhooks]
    else:
        found.note = "no webhooks in this build: events on the topic, the API and the stream only"
    for way, events in ways.items():
        _each_once(model, way, events, found)
    for delivery in model.dump.webhooks:
        found.that(is_signed(delivery), f"webhook {delivery['headers'].get('webhook-id')} is not signed by its secret")
    return found


def _each_once(model: Model, way: str, events: list[dict[str, Any]], found: Findings) -> None:
    ids: dict[str, set[str]] = defaultdict(set)
    for event in events:
        if is_terminal(event):
            ids[event["subject"]].add(event["id"])
    for imported in model.imports.values():
        if imported.is_over:
            told = ids[imported.id]
            found.that(len(told) == 1, f"{way} told the end of {imported.id} under {len(told)} ids")


def is_signed(delivery: dict[str, Any]) -> bool:
    """As Standard Webhooks wants it: HMAC-SHA256 over id, timestamp and body."""
    headers = delivery["headers"]
    secret = base64.b64decode(str(delivery["secret"]).removeprefix("whsec_"))
    signed = f"{headers.get('webhook-id')}.{headers.get('webhook-timestamp')}.{delivery['body']}".encode()
    expected = base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
    return f"v1,{expected}" in str(headers.get("webhook-signature", "")).split(" ")
