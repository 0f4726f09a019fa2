"""The sink contract. A sink gets groups of judged chunks, some of them again, in any order, and makes their rows durable.

Not guaranteed to it: that a group comes once, that versions rise, that a batch is cut the same way after a restart.
Guaranteed by it: after `write` returns, the rows of every group are durable and the greatest version of each key is read."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from millrace.lake.sidecar import StagedFile


@dataclass(frozen=True, slots=True)
class Group:
    """The chunks of one table that were judged together; `file` is None when none of their rows was accepted."""

    tenant: str
    table: str
    definition: str
    file: StagedFile | None
    chunks: tuple[tuple[str, int], ...]

    @staticmethod
    def from_dict(data: dict[str, Any]) -> "Group":
        staged = None if data["file"] is None else StagedFile.from_dict(data["file"])
        chunks = tuple((import_id, number) for import_id, number in data["chunks"])
        return Group(data["tenant"], data["table"], data["definition"], staged, chunks)


class Sink(Protocol):
    name: str

    def write(self, groups: Sequence[Group]) -> None:
        """Makes the groups, all of one table, durable."""


def by_table(groups: Iterable[Group]) -> list[list[Group]]:
    """The groups of each table together, small tables first: what is quickly done should not wait for what is not."""
    found: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        found.setdefault((group.tenant, group.table), []).append(group)
    return sorted(found.values(), key=lambda of_table: sum(group.file.rows for group in of_table if group.file))
