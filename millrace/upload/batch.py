"""Rows of senders that travel in one append: whose they are, in which order, and who is told about them."""

from dataclasses import dataclass, replace
from typing import Protocol

from millrace.model.errors import MillraceError


@dataclass(frozen=True, slots=True)
class AppendKey:
    """Whose rows may travel in one append."""

    tenant: str
    table: str
    span: str | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """Where rows went: the append's import, and the version they all have."""

    import_id: str
    version: int


class Source(Protocol):
    """Who sent rows and is told about them. Rows without the name of a sender have no numbers."""

    @property
    def sender(self) -> str | None: ...

    @property
    def wants_end(self) -> bool: ...

    @property
    def digest(self) -> str | None:
        """Of all the rows of a sender that sends once."""

    def placed(self, part: "BatchPart", placement: Placement) -> None: ...

    def failed(self, error: MillraceError) -> None:
        """Nothing of this source waits any more. What was sent last may or may not be in the log."""


@dataclass(frozen=True, slots=True)
class BatchPart:
    """The rows of one source in a batch. They are consecutive, so a row's place in the batch gives its number."""

    source: Source
    first_seq: int
    rows: int
    body: bytes
    first_row: int = 1

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.rows - 1

    @property
    def last_row(self) -> int:
        return self.first_row + self.rows - 1


@dataclass(frozen=True, slots=True)
class Batch:
    parts: tuple[BatchPart, ...]

    @staticmethod
    def of(parts: list[BatchPart]) -> "Batch":
        placed, row = [], 1
        for part in parts:
            placed.append(replace(part, first_row=row))
            row += part.rows
        return Batch(tuple(placed))

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def body(self) -> bytes:
        return b"".join(part.body for part in self.parts)

    @property
    def senders(self) -> dict[str, tuple[int, int]]:
        """By sender its first and its last row."""
        return {part.source.sender: (part.first_seq, part.last_seq) for part in self.parts if part.source.sender}

    @property
    def digests(self) -> dict[str, str]:
        found = ((part.source.sender, part.source.digest) for part in self.parts)
        return {sender: digest for sender, digest in found if sender and digest}

    @property
    def wants_end(self) -> bool:
        return any(part.source.wants_end for part in self.parts)

    def by_source(self) -> list["Batch"]:
        """The same rows, each sender alone, so that none can spoil the rows of another; rows without numbers together."""
        unnumbered = [part for part in self.parts if part.source.sender is None]
        numbered = [[part] for part in self.parts if part.source.sender is not None]
        return [Batch.of(parts) for parts in (*numbered, unnumbered) if parts]
