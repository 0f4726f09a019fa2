"""One entry of the log: its bytes in, its actions out, and what they say together. Refuses an entry that is empty, cut off or
changed."""

import io
from collections.abc import Iterator
from dataclasses import dataclass, field

from millrace.lake.actions import Action, AddFile, Metadata, Protocol, RemovedFile, Transaction
from millrace.lake.bounds import MOST_LINE_BYTES, parsed
from millrace.lake.checkpoint_columns import Overweight
from millrace.lake.sums import refuse_unless_whole


@dataclass(slots=True)
class EntryContent:
    """What one entry of the log says, as far as it was read."""

    protocol: Protocol
    metadata: Metadata | None
    most_weight: int
    added: dict[str, AddFile] = field(default_factory=dict)
    removed: list[RemovedFile] = field(default_factory=list)
    done: dict[str, Transaction] = field(default_factory=dict)
    weight: int = 0
    removed_weight: int = 0

    def take(self, action: Action) -> None:
        if "add" in action:
            file = AddFile.from_json(action["add"])
            self.added[file.path] = file
            self.weight += file.weight
        elif "remove" in action:
            self.removed.append(RemovedFile.from_json(action["remove"]))
            self.removed_weight += self.removed[-1].weight
        elif "txn" in action:
            transaction = Transaction.from_json(action["txn"])
            self.done[transaction.app_id] = transaction
            self.weight += transaction.weight
        elif "metaData" in action:
            self.metadata = Metadata.from_json(action["metaData"])
        elif "protocol" in action:
            self.protocol = Protocol.from_json(action["protocol"])
        if self.weight + self.removed_weight > self.most_weight:
            raise Overweight


def actions_of(body: bytes) -> Iterator[Action]:
    """Every writer says at least who it is. An entry without anything was cut off: whatever it said is lost."""
    is_first = True
    lines = io.BytesIO(body)
    # One byte more than a line may have: then it is refused.
    while line := lines.readline(MOST_LINE_BYTES + 2):
        if line := line.rstrip(b"\r\n"):
            action = parsed(line)
            if not isinstance(action, dict):
                raise TypeError("an action is no object")
            if is_first:
                refuse_unless_whole(action, memoryview(body)[lines.tell() :])
            is_first = False
            yield action
    if is_first:
        raise ValueError("it is empty")
