"""What waits in a queue and is for nobody any more."""

from millrace.deliver.queue import Item, Queue, deliverable
from millrace.deliver.waiver import newest_version
from millrace.exchange.safe_version import SafeVersion
from millrace.lake.state import NO_FLOOR
from millrace.sink.delta.upkeep import settled_version


def give_up(safe_version: SafeVersion, queue: Queue) -> None:
    """Lets go what someone gave up, and what is held for imports that ended without the word to show them."""
    waiting, waiver = queue.waiting(), queue.waiver
    given_up = [item for item in waiting if waiver.covers(item.group, item.version)]
    queue.done([*given_up, *_never_shown(safe_version, waiting)])


def _never_shown(safe_version: SafeVersion, waiting: list[Item]) -> list[Item]:
    """As old as for the lake: a sink that is not required may hear the word to show an import only long after its end."""
    to_come = {item.name for item in deliverable(waiting)}
    hidden = [item for item in waiting if item.name not in to_come]
    settled = settled_version(safe_version) if hidden else NO_FLOOR
    return [item for item in hidden if newest_version(item.group) <= settled]
