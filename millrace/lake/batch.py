"""What one commit is to bring to a table, as values: staged files with the definition each was written under, a definition
to prepare the table for, a version to truncate it at, and imports that become visible with it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from millrace.lake.sidecar import StagedFile
from millrace.lake.state import NO_FLOOR
from millrace.model.table import Definition

Definitions = Callable[[str], Definition]
"""The definition of a fingerprint."""


@dataclass(frozen=True, slots=True)
class DefinedFile:
    """A staged file and the definition its rows have the shape of; None for a table that knows no definitions."""

    file: StagedFile
    definition: Definition | None = None


@dataclass(frozen=True, slots=True)
class Publication:
    """An atomic import whose files become visible together, and the version of the chunk that says so."""

    import_id: str
    version: int

    @property
    def transaction_id(self) -> str:
        return f"publish/{self.import_id}"


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """Rows up to version `floor` go, and later ones at or below it are beaten. The table takes the shape of `definition`
    if that is newer than the one it has."""

    files: tuple[DefinedFile, ...] = ()
    floor: int = NO_FLOOR
    definition: Definition | None = None
    publications: tuple[Publication, ...] = ()
