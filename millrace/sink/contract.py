"""The sink contract. A sink gets groups of judged chunks, some of them again, in any order, and makes their rows durable.

Not guaranteed to it: that a group comes once, that versions or revisions rise, that a batch is cut the same way after a
restart. Guaranteed by it: after `write` returns, the rows of every group are durable and the greatest version of each key is
read, unless it awaits publication."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from millrace.lake.sidecar import StagedFile
from millrace.model.chunk import ROWS, TRUNCATE

# Of a group that carries no rows and is of no record: the import has ended, and its chunks are those that hold rows, behind
# one that stands for the end itself.
END, END_NUMBER = "end", -1


@dataclass(frozen=True, slots=True)
class StagedGroup:
    """The chunks of one table that were judged together; `file` is None when none of their rows was accepted.

    Kinds other than `rows` have no file and one chunk, whose version is `version`: `prepare` brings the table to the
    definition, `truncate` takes its rows up to that version, `publish` shows the rows of the chunk's import. With
    `publish` = `atomic` the file awaits that publication, and all chunks are of one import."""

    tenant: str
    table: str
    definition: str
    file: StagedFile | None
    chunks: tuple[tuple[str, int], ...]
    kind: str = ROWS
    version: int = 0
    publish: str = "rolling"

    @staticmethod
    def from_dict(data: dict[str, Any]) -> "StagedGroup":
        staged = None if data["file"] is None else StagedFile.from_dict(data["file"])
        chunks = tuple((import_id, number) for import_id, number in data["chunks"])
        # Records from before a field existed are still in the log.
        optional = {name: data[name] for name in ("kind", "version", "publish") if name in data}
        return StagedGroup(data["tenant"], data["table"], data["definition"], staged, chunks, **optional)

    @property
    def is_ageing(self) -> bool:
        """Rows may go because of their age: of no import, so nobody waits for it."""
        return self.kind == TRUNCATE and not self.chunks

    @property
    def import_id(self) -> str:
        return self.chunks[0][0]


class Sink(Protocol):
    name: str

    def write(self, groups: Sequence[StagedGroup]) -> Sequence[StagedGroup]:
        """Makes the groups, all of one table, durable; returns those that are its own. The others are other sinks'."""


def by_table(groups: Iterable[StagedGroup]) -> list[list[StagedGroup]]:
    """The groups of each table together, small tables first: what is quickly done should not wait for what is not."""
    found: dict[tuple[str, str], list[StagedGroup]] = {}
    for group in groups:
        found.setdefault((group.tenant, group.table), []).append(group)
    return sorted(found.values(), key=lambda of_table: sum(group.file.rows for group in of_table if group.file))
