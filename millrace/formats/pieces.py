"""The values of cutting: the pieces of an upload, the uploader's options, and the protocol of all cutters."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from millrace.model.chunk import CHUNK_BYTES, MAX_ROW_BYTES, Oversize, TextLayout
from millrace.model.errors import TooLarge
from millrace.model.table import CsvDialect, Definition

ResumePoint = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CutPiece:
    """A row-aligned piece of an upload that can be read without its neighbours.

    `encoding` is a format's chunk encoding, or oversize. Rows and lines count from 1; `first_line` is 0 for formats without
    lines."""

    body: bytes
    encoding: str
    first_row: int
    first_line: int
    rows: int
    layout: TextLayout | None = None
    oversize: Oversize | None = None


@dataclass(frozen=True, slots=True)
class UploadOptions:
    """The uploader's options for one file. None: the table's declaration decides. `file_name` is used in messages only.

    With `deletes` the rows are keys to delete, and other columns are ignored. With `amends` a column may number the rows that
    the file corrects."""

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
    amends: bool = False

    @property
    def what(self) -> str:
        """The upload's name in messages."""
        return f"The file {self.file_name!r:.120}" if self.file_name else "The file"

    def refuse_too_much(self, plain_bytes: int) -> None:
        if self.max_plain_bytes is not None and plain_bytes > self.max_plain_bytes:
            raise TooLarge(
                f"{self.what} has, or decompresses to, more than {self.max_plain_bytes} bytes.",
                remedy="Split it, or raise the table's max_file_size_mb.",
            )


@dataclass(frozen=True, slots=True)
class PieceLimits:
    """The greatest size of a piece, the greatest size of a row, and how much is kept of a longer row."""

    piece_bytes: int = CHUNK_BYTES
    row_bytes: int = MAX_ROW_BYTES
    kept_bytes: int = 64 << 10

    @property
    def row_text(self) -> str:
        whole, rest = divmod(self.row_bytes, 1 << 20)
        return f"{self.row_bytes} bytes" if rest else f"{whole} MiB"

    def oversize(self, row: int) -> Oversize:
        return Oversize("row_too_long", f"Row {row} is longer than {self.row_text}")


@dataclass(frozen=True, slots=True)
class Opening:
    """What a format's cutter is opened with. `dialect` is the table's, changed by the uploader's options."""

    definition: Definition
    options: UploadOptions
    dialect: CsvDialect
    limits: PieceLimits
    resume: ResumePoint | None = None
    spool_dir: Path | None = None


class Cutter(Protocol):
    """Cuts one upload, at points that depend on its bytes alone. Each iterator must be exhausted before the next call."""

    def feed(self, piece: bytes) -> Iterator[CutPiece]:
        """The pieces completed by these bytes."""

    def finish(self) -> Iterator[CutPiece]:
        """The last pieces. An upload without rows gives one piece without rows."""

    def drain(self) -> Iterator[CutPiece]:
        """The complete rows that are left, after the upload broke off."""

    def resume_point(self) -> ResumePoint | None:
        """The state behind the last piece, as JSON values. A cutter opened with it continues at its `offset`."""

    def rows_cut(self) -> int:
        """The rows in all pieces so far."""

    def repeated_headers(self) -> int:
        """The lines so far that repeat the header and were left out. They are no rows."""

    def close(self) -> None:
        """Releases files on disk. May be called at any time, more than once."""
