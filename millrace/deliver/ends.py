"""Ends of imports, and the age that rows may have, into the queues of the sinks that are told of them, where they wait like
rows do."""

from collections.abc import Callable, Iterator
from pathlib import Path

from millrace.deliver.members import Members
from millrace.deliver.queue import Queue
from millrace.exchange.ends import EndBox, ImportEnded, RowsAged
from millrace.exchange.places import Places
from millrace.model.chunk import TRUNCATE
from millrace.model.sinks import SinkTarget
from millrace.model.table import Definition
from millrace.sink.contract import END, END_NUMBER, StagedGroup
from millrace.sink.registry import has_ability, kinds


class Ends:
    def __init__(self, box: EndBox, places: Places, members: Members, definitions: Callable[[str], Definition]) -> None:
        self._box = box
        self._places = places
        self._members = members
        self._definitions = definitions

    def park(self) -> Iterator[tuple[Path, SinkTarget]]:
        """Parks the notices; the queues that have something now. A notice goes when every queue has it."""
        for notice in self._box.take():
            definition = self._definitions(notice.definition)
            ability, group = _age(definition, notice) if isinstance(notice, RowsAged) else _end(definition, notice)
            tenant, table = definition.tenant, definition.table.name
            for kind in (kind for kind in kinds() if has_ability(kind, ability)):
                for name, target in self._members.takers(kind, definition).items():
                    queue = Queue(self._places.queue(kind, tenant, table, name))
                    if not queue.waiver.covers(group, group.version):
                        queue.put(group, self._places.table(tenant, table))
                        yield queue.folder, target


def _end(definition: Definition, ended: ImportEnded) -> tuple[str, StagedGroup]:
    chunks = tuple((ended.import_id, number) for number in (END_NUMBER, *ended.chunks))
    group = StagedGroup(
        definition.tenant, definition.table.name, definition.fingerprint, None, chunks, END, ended.version
    )  # fmt: skip
    return "takes_ends", group


def _age(definition: Definition, aged: RowsAged) -> tuple[str, StagedGroup]:
    """It belongs to no import, so nobody waits for it."""
    group = StagedGroup(
        definition.tenant, definition.table.name, definition.fingerprint, None, (), TRUNCATE, aged.version
    )
    return "deletes_aged", group
