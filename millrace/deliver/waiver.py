"""What waits in a queue and will never be delivered: what someone gave up, and atomic imports that ended unpublished."""

from collections.abc import Sequence

from millrace.deliver.queue import Item, Queue, deliverable
from millrace.exchange.safe_version import SafeVersion
from millrace.lake.state import NO_FLOOR
from millrace.model.names import is_import_id
from millrace.model.queues import Waiver
from millrace.sink.contract import StagedGroup
from millrace.sink.delta.upkeep import settled_version


def is_waived(waiver: Waiver, group: StagedGroup) -> bool:
    # Nobody gave up anything yet. A group without rows has version 0, and its chunks must be reported all the same.
    if not waiver.below:
        return False
    # Rows that are deleted because of their age are deleted whatever was given up.
    if group.is_ageing or group.versions[1] > waiver.below:
        return False
    return not any(is_import_id(import_id) and import_id > waiver.until for import_id, _ in group.chunks)


def give_up(safe_version: SafeVersion, queue: Queue, waiver: Waiver) -> list[Item]:
    """Takes away what is waived, also what comes later of imports that had begun by then, and what nobody will publish.
    Returns what is left."""
    waiting = queue.waiting()
    waived = [item for item in waiting if _is_waived_item(waiver, item)]
    given_up = {item.name: item for item in (*waived, *_never_published(safe_version, waiting))}
    queue.done(list(given_up.values()))
    return [item for item in waiting if item.name not in given_up]


def _is_waived_item(waiver: Waiver, item: Item) -> bool:
    # A copy of a file counts as old as the moment it was made.
    return item.version <= waiver.below and is_waived(waiver, item.group)


def _never_published(safe_version: SafeVersion, waiting: Sequence[Item]) -> list[Item]:
    """As old as for the lake: a sink that is not required may get the group that publishes an import long after its end."""
    to_come = {item.name for item in deliverable(waiting)}
    hidden = [item for item in waiting if item.name not in to_come]
    settled = settled_version(safe_version) if hidden else NO_FLOOR
    return [item for item in hidden if item.group.versions[1] <= settled]
