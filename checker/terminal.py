"""Events that end an import, from wherever they were told: the topic, the API, the stream of events."""

import json
from collections.abc import Iterator
from typing import Any

from checker.model import TERMINAL, Model
from checker.oplog import EVENTS, FULL_READS, topic_of


def is_terminal(event: dict[str, Any]) -> bool:
    words = str(event["type"]).split(".")
    return words[-2:-1] == ["import"] and words[-1] in TERMINAL


def on_topic(model: Model) -> list[dict[str, Any]]:
    return [json.loads(text) for text in topic_of(model.dump.records, FULL_READS[0], EVENTS)["text"]]


def terminal_events(model: Model) -> Iterator[dict[str, Any]]:
    """Each as often as it was told."""
    told = (*on_topic(model), *model.dump.events, *(heard["event"] for heard in model.dump.heard))
    yield from (event for event in told if is_terminal(event))
