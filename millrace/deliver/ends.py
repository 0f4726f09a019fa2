"""Ends of imports, and the age that rows may have, into the queues of the sinks that are told of them, where they wait like
rows do."""

from collections.abc import Callable, Iterator

from millrace.deliver.queue import Queue
from millrace.deliver.roster import Roster
from millrace.deliver.waiver import is_waived
from millrace.exchange.ends import EndBox, ImportEnded, RowsAged
from millrace.exchange.places import Places
from millrace.exchange.queues import Queues
from millrace.model.chunk import TRUNCATE
from millrace.model.queues import QueueKey
from millrace.model.sinks import SinkTarget
from millrace.model.table import Definition
from millrace.sink.contract import END, END_NUMBER, StagedGroup
from millrace.sink.registry import has_ability, kinds


class Ends:
    def __init__(self, box: EndBox, places: Places, queues: Queues, definitions: Callable[[str], Definition]) -> None:
        self._box = box
        self._places = places
        self._queues = queues
        self._definitions = definitions

    def park(self) -> Iterator[tuple[QueueKey, SinkTarget]]:
        """Parks the notices; the queues that have something now. A notice goes when every queue has it."""
        for notice in self._box.take():
            definition = self._definitions(notice.definition)
            ability, group = _group(definition, notice)
            rows, found = [], {}
            for kind in (kind for kind in kinds() if has_ability(kind, ability)):
                roster = Roster(self._queues, self._definitions, kind, [(group.tenant, group.table)])
                for key, target in roster.takers(definition).items():
                    if not is_waived(roster.waiver(key), group):
                        table = self._places.table(group.tenant, group.table)
                        rows.append(Queue(self._places, self._queues, key).row_of(group, table))
                        found[key] = target
            self._queues.park(rows)
            yield from found.items()


def _group(definition: Definition, notice: ImportEnded | RowsAged) -> tuple[str, StagedGroup]:
    """What is parked for sinks that have an ability. Rows that are too old belong to no import, so nobody waits for them."""
    table = definition.tenant, definition.table.name, definition.fingerprint
    if isinstance(notice, RowsAged):
        return "deletes_aged", StagedGroup(*table, None, (), TRUNCATE, notice.version)
    chunks = tuple((notice.import_id, number) for number in (END_NUMBER, *notice.chunks))
    return "takes_ends", StagedGroup(*table, None, chunks, END, notice.version)
