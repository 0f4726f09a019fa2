"""The contents of one commit, as values: staged files with their definitions, a definition to prepare the table for, a
version to truncate it at, and imports that become visible.
"""

from collections.abc import Callable
from dataclasses import dataclass

from millrace.lake.sidecar import StagedFile
from millrace.lake.state import NO_FLOOR
from millrace.model.table import Definition

Definitions = Callable[[str], Definition]
"""A fingerprint in, its definition out."""


@dataclass(frozen=True, slots=True)
class DefinedFile:
    """A staged file and the definition that its rows were written under; None for a table without definitions."""

    file: StagedFile
    definition: Definition | None = None


@dataclass(frozen=True, slots=True)
class Publication:
    """An atomic import whose files become visible together, and the version of that order."""

    import_id: str
    version: int

    @property
    def transaction_id(self) -> str:
        return f"publish/{self.import_id}"


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """Rows up to version `floor` are removed, and late rows at or below it are dropped. The table takes the shape of
    `definition` if it is newer than the table's own."""

    files: tuple[DefinedFile, ...] = ()
    floor: int = NO_FLOOR
    definition: Definition | None = None
    publications: tuple[Publication, ...] = ()
