"""What cutting is about: the pieces of an upload, how an upload is described, and what every cutter can do."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from millrace.model.chunk import CHUNK_BYTES, MAX_ROW_BYTES, Oversize, TextLayout
from millrace.model.table import CsvDialect, Definition

ResumePoint = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cut:
    """A row-aligned piece of an upload that can be read without its neighbours.

    `encoding` is csv, jsonl, avro, arrow or oversize. Rows and lines count from 1; without lines `first_line` is 0.
    `source_end` is the offset in the uploaded bytes right behind the piece, None if no upload can be resumed there."""

    body: bytes
    encoding: str
    first_row: int
    first_line: int
    rows: int
    layout: TextLayout | None = None
    oversize: Oversize | None = None
    source_end: int | None = None


@dataclass(frozen=True, slots=True)
class UploadOptions:
    """What the uploader says about one file; None means: as the table declares it. `file_name` serves messages only.

    With `deletes` its rows are keys to delete, and columns beside the key are neither needed nor looked at."""

    file_type: str | None = None
    compression: str | None = None
    header: bool | None = None
    delimiter: str | None = None
    quote: str | None = None
    null_text: str | None = None
    encoding: str | None = None
    max_plain_bytes: int | None = None
    file_name: str = ""
    deletes: bool = False

    @property
    def what(self) -> str:
        """How messages call the upload."""
        return f"The file {self.file_name!r:.120}" if self.file_name else "The file"


@dataclass(frozen=True, slots=True)
class PieceLimits:
    """How long a piece should be at most, how long a single row may be, and what is kept of a longer one."""

    piece_bytes: int = CHUNK_BYTES
    row_bytes: int = MAX_ROW_BYTES
    kept_bytes: int = 64 << 10

    @property
    def row_text(self) -> str:
        whole, rest = divmod(self.row_bytes, 1 << 20)
        return f"{self.row_bytes} bytes" if rest else f"{whole} MiB"


@dataclass(frozen=True, slots=True)
class Opening:
    """What a format's cutter is opened with. `dialect` is the table's, changed by what the uploader says."""

    definition: Definition
    options: UploadOptions
    dialect: CsvDialect
    limits: PieceLimits
    resume: ResumePoint | None = None
    spool_dir: Path | None = None


class Cutter(Protocol):
    """Cuts one upload, at points that depend on its bytes alone. Each iterator must be used up before the next call."""

    def feed(self, piece: bytes) -> Iterator[Cut]:
        """The pieces completed by these bytes."""
        ...

    def finish(self) -> Iterator[Cut]:
        """The rest. An upload without rows ends in one piece with none."""
        ...

    def drain(self) -> Iterator[Cut]:
        """What is complete of the rest, when it is known that the upload broke off."""
        ...

    def resume_point(self) -> ResumePoint | None:
        """The state behind the last piece, as JSON values; feed a cutter opened with it from its `offset` on."""
        ...

    def rows_cut(self) -> int:
        """The rows in all pieces so far."""
        ...

    def close(self) -> None:
        """Gives back what is held outside memory. May be called at any time, more than once."""
        ...
