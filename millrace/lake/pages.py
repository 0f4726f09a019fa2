"""Whether a Parquet checkpoint is small for sure: as this platform writes them, with its checksum and without dictionaries,
and its pages, not only its footer, say that little comes out of it. Decompressors write no more than a page's header says.
What is not small for sure is decoded apart.

The footer is only parsed if it is short: a footer of n bytes takes up to 200 n in memory."""

import io
import struct
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from millrace.lake.sums import is_summed_parquet

MOST_FOOTER_BYTES = 64 << 10
MOST_PLAIN_BYTES = 32 << 20
# Of what comes out: a compressed file has no more than a part of it, and a row takes some of it.
FILE_SHARE, LEAST_ROW_BYTES, MOST_ROW_VALUES = 4, 320, 64
_LISTED, _TEXT_BYTES = 10_000, 64 << 10
_MAGIC = b"PAR1"
_OURS = "parquet-cpp-arrow version "
_DATA_PAGE, _PLAIN = 0, 0
# Types of Thrift's compact protocol.
_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, 12
_DEEPEST = 8


def small_checkpoint(data: bytes, columns: Sequence[str], most_plain: int = MOST_PLAIN_BYTES) -> pq.ParquetFile | None:
    """The opened file if it has exactly these columns and is small for sure: no more than `most_plain` comes out of it.
    ValueError if it is damaged."""
    # Found before the library sees it: a wrong footer may end the whole process.
    if not is_summed_parquet(data) or not _has_short_footer(data, most_plain):
        return None
    try:
        limits = {"thrift_string_size_limit": _TEXT_BYTES, "thrift_container_size_limit": _LISTED}
        file = pq.ParquetFile(io.BytesIO(data), **limits)
        is_small = _is_small(file.metadata, data, columns, most_plain)
    except (pa.ArrowException, OSError, ValueError, IndexError):
        return None
    return file if is_small else None


def _has_short_footer(data: bytes, most_plain: int) -> bool:
    if not 12 < len(data) <= most_plain // FILE_SHARE or data[-4:] != _MAGIC:
        return False
    return int(struct.unpack("<I", data[-8:-4])[0]) <= MOST_FOOTER_BYTES


def _is_small(footer: pq.FileMetaData, data: bytes, columns: Sequence[str], most_plain: int) -> bool:
    most_rows = most_plain // LEAST_ROW_BYTES
    if not footer.created_by.startswith(_OURS) or not 0 <= footer.num_rows <= most_rows:
        return False
    if [footer.schema.column(number).path for number in range(footer.num_columns)] != list(columns):
        return False
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    if any(group.num_rows < 0 for group in groups) or sum(group.num_rows for group in groups) > most_rows:
        return False
    plain = values = 0
    for group in groups:
        for number in range(group.num_columns):
            chunk = group.column(number)
            start = chunk.data_page_offset
            if chunk.has_dictionary_page or start < 0 or not 0 <= chunk.total_compressed_size <= len(data) - start:
                return False
            for size, count in _data_pages(data, start, start + chunk.total_compressed_size):
                plain, values = plain + size, values + count
                if plain > most_plain or values > MOST_ROW_VALUES * most_rows:
                    return False
    return True


def _data_pages(data: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """What comes out of each page, and how many values it has. ValueError for a page of another kind."""
    while start < end:
        header, start = _struct(data, start, 0)
        kind, size, stored, page = header.get(1), header.get(2), header.get(3), header.get(5)
        if kind != _DATA_PAGE or not isinstance(page, dict) or page.get(2) != _PLAIN:
            raise ValueError("a page is not plain")
        if not isinstance(size, int) or not isinstance(stored, int) or not isinstance(page.get(1), int):
            raise ValueError("a page has no sizes")
        if min(size, stored, page[1]) < 0 or stored > end - start:
            raise ValueError("a page leaves its column")
        yield size, page[1]
        start += stored


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, object], int]:
    """A struct of Thrift's compact protocol, by the numbers of its fields, and where it ends."""
    if depth > _DEEPEST:
        raise ValueError("a header is nested too deep")
    found: dict[int, object] = {}
    number = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _zigzag(data, at)
        found[number], at = _value(data, at, head & 15, depth)
    return found, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[object, int]:
    if kind in _BOOLEANS:
        return kind == _BOOLEANS[0], at
    if kind in _INTEGERS:
        return _zigzag(data, at)
    if kind in (_BYTE, _DOUBLE):
        return None, at + (1 if kind == _BYTE else 8)
    if kind == _BINARY:
        size, at = _varint(data, at)
        return None, at + size
    if kind == _STRUCT:
        return _struct(data, at, depth + 1)
    raise ValueError("a header has a field that pages have not")


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    number, at = _varint(data, at)
    return (number >> 1) ^ -(number & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while shift < 64:
        octet = data[at]
        number |= (octet & 127) << shift
        at, shift = at + 1, shift + 7
        if octet < 128:
            return number, at
    raise ValueError("a number does not end")
