"""The file format of key files: arrays in, an immutable file out, and back as memory maps. A file that is cut off counts as
missing; a page of it that was changed is found before its first use.

Behind the columns a file has the first hash of each page (fences), if it is large a filter, and a checksum for each page.
Files of the first format have only columns; they are read as they are."""

import mmap
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from millrace.lake.key_filter import WORDS, FilterBuilder, block_count
from millrace.lake.key_pages import CheckedPages, DamagedKeys, page_count, page_sums, units_of
from millrace.lake.keys import FENCE_ROWS, RUNS_FOLDER, KeyFile, columns_for
from millrace.lake.store import Store

# Smaller files are searched quickly without a filter.
FILTERED_ROWS = 1 << 16

_OLD_MAGIC, _MAGIC = b"MRKEYS01", b"MRKEYS02"
_OLD_HEADER, _HEADER = struct.Struct("<8sQ"), struct.Struct("<8sQQ")
_SIDECAR_HEADER = 64 << 10


def write_keys(store: Store, name: str, keys: KeyFile, *, filtered: bool = False) -> None:
    """`filtered`: with a filter, if it is large enough for one."""
    sections: dict[str, npt.NDArray[Any]] = {
        column: np.ascontiguousarray(getattr(keys, column)).astype(kind, copy=False)
        for column, kind in columns_for(keys.files)
    }
    sections["fences"] = np.ascontiguousarray(keys.h1[::FENCE_ROWS])
    layout = KeyLayout(keys.files, len(keys), filtered)
    if layout.blocks:
        builder = FilterBuilder(len(keys))
        sections["filter"] = np.concatenate([builder.add(keys.h1, keys.h2), builder.finish()])
    with store.creating(name) as file:
        file.write(layout.header)
        for values in sections.values():
            file.write(values.data)
            file.write(bytes(-file.tell() % 8))
        file.write(np.concatenate([page_sums(units_of(values)) for values in sections.values()]).data)


class KeyLayout:
    """Where the sections of a key file are: name, type, number of values, offset."""

    def __init__(self, files: Sequence[str], rows: int, filtered: bool) -> None:
        self.blocks = block_count(rows) if filtered and rows >= FILTERED_ROWS else 0
        self.header = _header(files, rows, self.blocks)
        self.sections = _sections(files, rows, self.blocks, len(self.header))
        kind, count, offset = self.sections["sums"]
        self.size = offset + count * np.dtype(kind).itemsize


def _header(files: Sequence[str], rows: int, blocks: int) -> bytes:
    header = orjson.dumps({"files": list(files), "rows": rows, "blocks": blocks})
    header += b" " * (-len(header) % 8)
    return _HEADER.pack(_MAGIC, len(header), _sum_of(header)) + header


def _sum_of(header: bytes | memoryview) -> int:
    return int(np.bitwise_xor.reduce(page_sums(np.frombuffer(header, dtype=np.uint32))))


def _sections(files: Sequence[str], rows: int, blocks: int, start: int) -> dict[str, tuple[str, int, int]]:
    if rows < 0 or blocks < 0:
        raise ValueError("a negative number of rows")
    wanted = [(column, kind, rows) for column, kind in columns_for(files)]
    wanted += [("fences", "<u8", -(-rows // FENCE_ROWS))] + ([("filter", "<u4", blocks * WORDS)] if blocks else [])
    found_sections, pages = {}, 0
    for name, kind, count in wanted:
        size = count * np.dtype(kind).itemsize
        found_sections[name] = kind, count, start
        start, pages = start + size + -size % 8, pages + page_count(size)
    found_sections["sums"] = "<u8", pages, start
    return found_sections


def read_keys(store: Store, name: str) -> KeyFile | None:
    """None if the file is missing, truncated or not a key file."""
    try:
        content = store.map(name)
    except FileNotFoundError:
        return None
    if len(content) < _HEADER.size:
        return None
    try:
        if content[:8] == _OLD_MAGIC:
            return _read_old(content, name)
        return _read(content, name) if content[:8] == _MAGIC else None
    except (ValueError, LookupError, TypeError, OverflowError, DamagedKeys):
        return None


def _read(content: memoryview, name: str) -> KeyFile | None:
    _, length, checksum = _HEADER.unpack(content[: _HEADER.size])
    text = _header_text(content, name, _HEADER.size, length)
    if length % 8 or _sum_of(text) != checksum:
        return None
    header = orjson.loads(text)
    files, rows, blocks = tuple(header["files"]), int(header["rows"]), int(header["blocks"])
    sections = _sections(files, rows, blocks, _HEADER.size + length)
    _, count, offset = sections["sums"]
    if len(content) != offset + 8 * count:
        return None
    arrays = _arrays(content, sections)
    sums = arrays.pop("sums")
    file, pages = KeyFile(files=files, name=name, **arrays), CheckedPages(name, arrays, sums)
    if not isinstance(content.obj, mmap.mmap):
        pages.check_all()
        return file
    pages.check_range("fences", 0, len(arrays["fences"]))
    file = replace(file, pages=pages)
    if file.filter is not None:
        # Wanted keys are anywhere, and each of them reads a page of the filter.
        file.advise(mmap.MADV_RANDOM)
        file.advise(mmap.MADV_WILLNEED, sections["filter"][2] // mmap.PAGESIZE * mmap.PAGESIZE)
    return file


def _read_old(content: memoryview, name: str) -> KeyFile | None:
    _, length = _OLD_HEADER.unpack(content[: _OLD_HEADER.size])
    header = orjson.loads(_header_text(content, name, _OLD_HEADER.size, length))
    files, rows = tuple(header["files"]), int(header["rows"])
    sections = _sections(files, rows, 0, _OLD_HEADER.size + length)
    end = sections.pop("fences")[2]
    del sections["sums"]
    if len(content) != end:
        return None
    return KeyFile(files=files, name=name, is_old=True, **_arrays(content, sections))


def _header_text(content: memoryview, name: str, start: int, length: int) -> memoryview:
    # Only a run, which this machine wrote, names many files.
    longest = len(content) if name.startswith(RUNS_FOLDER) else _SIDECAR_HEADER
    if length > min(longest, len(content) - start):
        raise ValueError("the header is too long")
    return content[start : start + length]


def _arrays(content: memoryview, sections: Mapping[str, tuple[str, int, int]]) -> dict[str, Any]:
    return {
        section: np.frombuffer(content, dtype=kind, count=count, offset=offset)
        for section, (kind, count, offset) in sections.items()
    }
