"""Ends of imports, and the age that rows may have, into the queues of the sinks that are told of them, where they wait like
rows do."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from millrace.deliver.members import Members
from millrace.deliver.queue import Queue
from millrace.model.chunk import TRUNCATE
from millrace.model.names import Home
from millrace.model.sinks import AGED_BY_US, TOLD_OF_ENDS, SinkTarget
from millrace.model.table import Definition
from millrace.sink.contract import END, END_NUMBER, StagedGroup


class Ends:
    def __init__(self, home: Home, members: Members, definitions: Callable[[str], Definition]) -> None:
        self._home = home
        self._members = members
        self._definitions = definitions

    def park(self) -> Iterator[tuple[Path, SinkTarget]]:
        """Parks what the accountant left; the queues that have something now. A mark goes when every queue has it."""
        for mark in sorted(self._home.ends.glob("*.json")):
            told = orjson.loads(mark.read_bytes())
            definition = self._definitions(told["definition"])
            kinds, group = _age(definition, told) if "age" in told else _end(definition, told)
            tenant, table = definition.tenant, definition.table.name
            for kind in kinds:
                for name, target in self._members.takers(kind, definition).items():
                    queue = Queue(self._home.queue(kind, tenant, table, name))
                    if not queue.waiver.covers(group, group.version):
                        queue.put(group, self._home.table(tenant, table))
                        yield queue.folder, target
            mark.unlink(missing_ok=True)


def _end(definition: Definition, told: dict[str, Any]) -> tuple[tuple[str, ...], StagedGroup]:
    chunks = tuple((told["import"], number) for number in (END_NUMBER, *told["chunks"]))
    group = StagedGroup(
        definition.tenant, definition.table.name, definition.fingerprint, None, chunks, END, told["version"]
    )  # fmt: skip
    return TOLD_OF_ENDS, group


def _age(definition: Definition, told: dict[str, Any]) -> tuple[tuple[str, ...], StagedGroup]:
    """It belongs to no import, so nobody waits for it."""
    group = StagedGroup(
        definition.tenant, definition.table.name, definition.fingerprint, None, (), TRUNCATE, told["age"]
    )
    return AGED_BY_US, group
