"""What waits in a queue and is for nobody any more."""

import time
from datetime import timedelta

from millrace.model.names import Home
from millrace.sink.parking import Item, Queue, deliverable
from millrace.sink.upkeep import REPLAYED_WITHIN
from millrace.sink.waiver import newest_version


def give_up(home: Home, queue: Queue) -> None:
    """Lets go what someone gave up, and what is held for imports that ended without the word to show them."""
    waiting, waiver = queue.waiting(), queue.waiver
    given_up = [item for item in waiting if waiver.covers(item.group, item.version)]
    queue.done([*given_up, *_never_shown(home, waiting)])


def _never_shown(home: Home, waiting: list[Item]) -> list[Item]:
    to_come = {item.name for item in deliverable(waiting)}
    hidden = [item for item in waiting if item.name not in to_come]
    settled = _settled_version(home) if hidden else 0
    return [item for item in hidden if newest_version(item.group) <= settled]


def _settled_version(home: Home) -> int:
    """No import at or below it is under way. It is as old as for the lake: a sink that is not required may hear the word to
    show an import only long after that has ended."""
    long_ago = time.time_ns() // 1000 - REPLAYED_WITHIN // timedelta(microseconds=1)
    try:
        return min(int(home.safe_version.read_text()), long_ago)
    except (FileNotFoundError, ValueError):
        return 0
