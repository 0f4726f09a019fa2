"""A file of corrected rows, read before it is imported: which rejected rows it names, or which keys its rows have.

It waits on disk, sealed, so memory does not grow with it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from millrace.api.jobs.rejected_rows import DIALECT
from millrace.formats.apart import open_apart
from millrace.formats.cut import CutPiece, UploadOptions
from millrace.formats.numbered import NO_NUMBER, Numbers, header_line, without_numbers
from millrace.formats.spool import Spool
from millrace.formats.transcode import Transcode
from millrace.model.chunk import ChunkHeader
from millrace.model.columns import ROW_COLUMN
from millrace.model.errors import Invalid
from millrace.model.formats import JSON_LINES, every_format
from millrace.model.table import CsvDialect, Definition
from millrace.validate.keyed import NO_KEYS, KeyedRows, keyed_rows

# Plain or as sent. Corrected rows are few; others are a file to import.
MOST_CORRECTED_BYTES = 256 << 20
PIECE_BYTES = 1 << 20
_HEAD_BYTES = 64


@dataclass(frozen=True, slots=True)
class CorrectedFile:
    """`body` is what is imported, `options` how it is written. `numbers` has the rejected row that each row names (NO_NUMBER:
    none), unless no row names one: then `keys` has the keys of the rows that have one."""

    body: Spool
    options: dict[str, Any]
    rows: int
    numbers: Numbers | None
    keys: KeyedRows

    def pieces(self) -> Iterator[bytes]:
        self.body.seek(0)
        while piece := self.body.read(PIECE_BYTES):
            yield piece


class CorrectedReader:
    """Reads one file. `stripped` takes its rows without their numbers."""

    def __init__(self, definition: Definition, options: dict[str, Any], stripped: Spool, *, deletes: bool) -> None:
        self._definition = definition
        self._options = options
        self._stripped = stripped
        self._deletes = deletes
        self._rows = 0
        self._numbers: list[Numbers] = []
        self._keys: list[KeyedRows] = []
        self._has_header = self._has_numbers = False

    def read(self, sent: Spool, spool_dir: Path, memory_bytes: int, decoders: int) -> CorrectedFile:
        options = _sniffed(sent, self._options, self._definition.table.csv)
        said = UploadOptions(**options, max_plain_bytes=MOST_CORRECTED_BYTES, deletes=self._deletes, amends=True)
        opened = partial(open_apart, memory_bytes=memory_bytes, most_of_tenant=decoders)
        cutter = opened(self._definition, said, spool_dir=spool_dir)
        sent.seek(0)
        try:
            while piece := sent.read(PIECE_BYTES):
                for cut in cutter.feed(piece):
                    self._take(cut)
            for cut in cutter.finish():
                self._take(cut)
        finally:
            cutter.close()
        self._stripped.whole()
        if not self._rows:
            raise Invalid("There are no corrected rows in the file.", remedy="Send at least one.", code="no_rows")
        if not self._has_numbers:
            return CorrectedFile(sent, options, self._rows, None, _joined(self._keys))
        # The rows without their numbers were written as plain UTF-8, CSV with a header.
        plain = {name: value for name, value in options.items() if name not in ("compression", "encoding", "header")}
        written = {**plain, "encoding": "utf-8", "header": True} if self._has_header else plain
        return CorrectedFile(self._stripped, written, self._rows, np.concatenate(self._numbers), NO_KEYS)

    def _take(self, cut: CutPiece) -> None:
        if cut.oversize is not None:
            raise Invalid(f"{cut.oversize.message}.", remedy="Correct it, or leave the row out.", code="bad_row")
        if not cut.rows:
            return
        found = without_numbers(cut)
        if found.layout is not None and not self._has_header:
            self._has_header = True
            self._stripped.write(header_line(found.layout) + b"\n")
        self._stripped.write(found.body if found.body.endswith(b"\n") else found.body + b"\n")
        numbers = found.numbers
        if numbers is None:
            numbers = np.full(cut.rows, NO_NUMBER, np.int64)
            self._keys.append(self._keyed(cut))
        elif len(numbers) != cut.rows:
            raise Invalid(
                f"Rows behind line {cut.first_line} cannot be told apart.", remedy="Check their quotes.", code="bad_row"
            )
        self._has_numbers |= found.numbers is not None
        self._numbers.append(numbers)
        self._rows += cut.rows

    def _keyed(self, cut: CutPiece) -> KeyedRows:
        header = chunk_header(cut.encoding, cut.rows, self._definition, layout=cut.layout, deletes=self._deletes)
        found = keyed_rows(header, cut.body, self._definition) or NO_KEYS
        return KeyedRows(found.rows + self._rows, found.first, found.second)


def chunk_header(encoding: str, rows: int, definition: Definition, **more: Any) -> ChunkHeader:
    """Of rows that are only looked at."""
    return ChunkHeader("", 0, 0, definition.fingerprint, encoding, 1, 1, rows, 0, 0, **more)


def _joined(parts: list[KeyedRows]) -> KeyedRows:
    if not parts:
        return NO_KEYS
    columns = zip(*((part.rows, part.first, part.second) for part in parts), strict=True)
    return KeyedRows(*(np.concatenate(column) for column in columns))


def _sniffed(sent: Spool, options: dict[str, Any], declared: CsvDialect) -> dict[str, Any]:
    """What the first bytes say: the format, unless it was named, and the header that only a file with `_row` has."""
    sent.seek(0, os.SEEK_SET)
    head = sent.read(_HEAD_BYTES)
    if "file_type" not in options:
        known = next((one for one in every_format() if one.magic and head.startswith(one.magic)), None)
        is_json = head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
        found = JSON_LINES if is_json else known
        options = options if found is None else {**options, "file_type": found.name}
    dialect = {name: options.get(name, getattr(declared, name)) for name in DIALECT}
    return {**options, "header": True} if _names_rows(head, dialect) else options


def _names_rows(head: bytes, dialect: dict[str, Any]) -> bool:
    transcode = Transcode(dialect["encoding"], "The file")
    try:
        text = b"".join([*transcode.feed(head[: len(head) // 4 * 4 or len(head)])])
    except Invalid:
        return False
    text = text.lstrip(b"\xef\xbb\xbf\r\n")
    quote, delimiter = dialect["quote"], dialect["delimiter"]
    return text.startswith(tuple(f"{name}{delimiter}".encode() for name in (ROW_COLUMN, f"{quote}{ROW_COLUMN}{quote}")))
