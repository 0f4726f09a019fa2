"""Events that end an import, from wherever they were told: the topic, the API, the stream of events."""

from collections.abc import Iterator
from typing import Any

from checker.imported import TERMINAL
from checker.model import Model


def is_terminal(event: dict[str, Any]) -> bool:
    words = str(event["type"]).split(".")
    return words[-2:-1] == ["import"] and words[-1] in TERMINAL


def on_topic(model: Model) -> list[dict[str, Any]]:
    """Every record of the events topic, in order per tenant."""
    return model.told


def terminal_events(model: Model) -> Iterator[dict[str, Any]]:
    """Each as often as it was told."""
    told = (*on_topic(model), *model.dump.events, *(heard["event"] for heard in model.dump.heard))
    yield from (event for event in told if is_terminal(event))
