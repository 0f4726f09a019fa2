"""How much a target is sent at once, how long it may take, and when it is tried again: outcomes of deliveries in, the next
state of its queue out."""

from collections.abc import Sequence
from dataclasses import replace

from millrace.deliver.delivery import BUDGET_SECONDS, Delivered
from millrace.deliver.queue import Item
from millrace.model.queues import QueueState

MOST_ROWS = 300_000
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, MOST_DOUBLINGS = 0.5, 60.0, 7
LONGEST_BUDGET_SECONDS = 3600.0


def next_portion(items: Sequence[Item], most_rows: int | None) -> list[Item]:
    """The oldest, as many as one task should hold; an atomic import is not cut."""
    rows = 0
    portion: list[Item] = []
    for item in items:
        if portion and rows + item.rows > (most_rows or MOST_ROWS) and not item.awaits_publish:
            break
        rows += item.rows
        portion.append(item)
    return portion


def after_success(state: QueueState, items: Sequence[Item], refused_rows: int) -> QueueState:
    most_rows = state.most_rows and state.most_rows * 2
    versions = (item.version for item in items if not item.is_backfill)
    return QueueState(
        last_version=max(state.last_version, *versions, 0),
        refused_rows=state.refused_rows + refused_rows,
        most_rows=most_rows if most_rows and most_rows < MOST_ROWS else None,
        budget_seconds=state.budget_seconds,
    )


def after_failure(state: QueueState, outcome: Delivered, items: Sequence[Item], now: float) -> QueueState:
    """The pause doubles with every try. A target that was too slow gets less at once; if it cannot get less, more time."""
    pause = min(FIRST_PAUSE_SECONDS * 2 ** min(state.tries, MOST_DOUBLINGS), LONGEST_PAUSE_SECONDS)
    failed = replace(
        state,
        parked_since=state.parked_since or now,
        fault=outcome.fault,
        reason=outcome.message,
        tries=state.tries + 1,
        next_try=now + pause,
    )
    if outcome.is_late and len(items) > 1:
        return replace(failed, most_rows=max(sum(item.rows for item in items) // 2, 1))
    if outcome.is_late:
        budget = min((state.budget_seconds or BUDGET_SECONDS) * 2, LONGEST_BUDGET_SECONDS)
        return replace(failed, budget_seconds=budget)
    return failed
