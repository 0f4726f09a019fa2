"""What the judge reads from a chunk: its header and its definition in, the wanted columns out."""

from dataclasses import dataclass, replace

from millrace.formats.matching import readable_columns
from millrace.model.chunk import ChunkHeader
from millrace.model.columns import Column
from millrace.model.fields import bare
from millrace.model.table import Definition


@dataclass(frozen=True, slots=True)
class Reading:
    """`unknown`: what happens to other columns: reject, ignore or rescue. `marked`: rows may mark that they delete."""

    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    unknown: str
    marked: bool

    @property
    def rescues(self) -> bool:
        return self.unknown == "rescue"


def reading_of(header: ChunkHeader, definition: Definition) -> Reading:
    columns = readable_columns(definition, deletes=header.deletes)
    # A declaration may wrap types needlessly. Parsers expect them without.
    if any(bare(column.avro) is not column.avro for column in columns):
        columns = tuple(replace(column, avro=bare(column.avro)) for column in columns)
    unknown = "ignore" if header.deletes else definition.table.unknown_fields
    return Reading(columns, definition.table.primary_key, unknown, not header.deletes)
