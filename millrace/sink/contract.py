"""The contract of the sinks inside the data plane: groups of judged chunks in, durable rows out.

A group may come more than once, in any order of versions and revisions, and a batch may be cut differently after a restart.
After `write` returns, the rows of every group are durable, and readers see the greatest version of each key, except for rows
that await publication."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from millrace.lake.sidecar import StagedFile
from millrace.model.chunk import ROWS, TRUNCATE

# The kind of a group without rows: its import has ended. Its chunks are END_NUMBER, then those of the import that hold rows.
END, END_NUMBER = "end", -1


@dataclass(frozen=True, slots=True)
class StagedGroup:
    """The chunks of one table that were judged together; `file` is None when none of their rows was accepted.

    Kinds other than `rows` have no file and one chunk, whose version is `version`: `prepare` brings the table to the
    definition, `truncate` deletes its rows up to that version, `publish` shows the rows of the chunk's import. With
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
        """Asks to delete rows because of their age. It belongs to no import, so nobody waits for it."""
        return self.kind == TRUNCATE and not self.chunks

    @property
    def versions(self) -> tuple[int, int]:
        """The oldest and the newest of its chunks."""
        found = [chunk.version for chunk in self.file.chunks] if self.file else []
        return min(found, default=self.version), max(found, default=self.version)

    @property
    def import_id(self) -> str:
        return self.chunks[0][0]


class Sink(Protocol):
    name: str

    def write(self, groups: Sequence[StagedGroup]) -> Sequence[StagedGroup]:
        """Makes the groups durable, which are all of one table. Returns those that this sink stores.

        Raises SinkFailed if the table cannot be written and no other table is concerned; anything else is the platform's
        trouble. Called from several threads, but for one table from one at a time."""


def by_table(groups: Iterable[StagedGroup]) -> list[list[StagedGroup]]:
    """The groups of each table together, small tables first: quick work does not wait for slow work."""
    found: dict[tuple[str, str], list[StagedGroup]] = {}
    for group in groups:
        found.setdefault((group.tenant, group.table), []).append(group)
    return sorted(found.values(), key=lambda of_table: sum(group.file.rows for group in of_table if group.file))
