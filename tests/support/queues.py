"""Queues of deliveries in the control store of a home."""

from pathlib import Path

from millrace.deliver.queue import Queue
from millrace.exchange.home import Home
from millrace.exchange.places import Places
from millrace.exchange.queues import Queues
from millrace.model.queues import QueueKey, QueueState
from millrace.sink.contract import StagedGroup
from millrace.store.engine import ControlStore


def queues_of(home: Home) -> Queues:
    home.root.mkdir(parents=True, exist_ok=True)
    return Queues(ControlStore(f"sqlite:///{home.store}"))


def queue_at(home: Home, *key: str) -> Queue:
    """By kind, tenant, table and target."""
    return Queue(Places(home), queues_of(home), QueueKey(*key))


def state_of(queues: Queues, key: QueueKey) -> QueueState:
    record = queues.get(key)
    return QueueState() if record is None else record.state


def put(queue: Queue, group: StagedGroup, table: Path) -> None:
    """As couriers park a group whose files are below `table`."""
    with queue._queues.pinning:
        queue._queues.park([queue.row_of(group, table)])
