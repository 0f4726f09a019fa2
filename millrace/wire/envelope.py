"""Records as bytes and back. A chunk is a small JSON stamp followed by its compressed rows; everything else is JSON."""

import struct
import zlib
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import orjson
import zstandard

from millrace.model.chunk import ChunkHeader
from millrace.model.errors import Corrupt
from millrace.observe import observe

Read = TypeVar("Read")

_FORMAT = 1
_PREFIX = struct.Struct("<BI")


def compress(body: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(body)


def checksum(payload: bytes) -> int:
    return zlib.crc32(payload)


def pack_chunk(header: ChunkHeader, payload: bytes) -> bytes:
    fields = asdict(header)
    if not header.was_held:
        # Hardly any chunk is held. An older data plane does not know the field.
        del fields["was_held"]
    stamp = orjson.dumps(fields)
    return _PREFIX.pack(_FORMAT, len(stamp)) + stamp + payload


def pack_close(import_id: str) -> bytes:
    """The marker behind which nothing belongs to the import."""
    stamp = orjson.dumps({"close": import_id})
    return _PREFIX.pack(_FORMAT, len(stamp)) + stamp


def unpack_stamp(record: bytes) -> tuple[ChunkHeader | None, memoryview]:
    """The chunk's header (None for a close marker) and its compressed rows."""
    kind, length = _PREFIX.unpack_from(record)
    if kind != _FORMAT:
        raise Corrupt(f"A raw-input record has the unknown format {kind}.")
    start = _PREFIX.size
    stamp = orjson.loads(record[start : start + length])
    payload = memoryview(record)[start + length :]
    return (None if "close" in stamp else ChunkHeader.from_dict(stamp)), payload


def unpack_rows(
    header: ChunkHeader, payload: memoryview, opened: Callable[[memoryview], bytes | memoryview] = lambda sealed: sealed
) -> bytes:
    """The chunk's plain rows, verified. `opened` undoes the seal of one that has a key."""
    if zlib.crc32(payload) != header.checksum:
        raise Corrupt(f"Chunk {header.number} of {header.import_id} does not match its checksum.")
    payload = memoryview(opened(payload))
    try:
        # One byte more than promised would be noticed: the size is checked below.
        body = zstandard.ZstdDecompressor().decompress(payload, max_output_size=header.plain_bytes + 1)
    except zstandard.ZstdError as error:
        raise Corrupt(f"Chunk {header.number} of {header.import_id} cannot be decompressed: {error}.") from error
    if len(body) != header.plain_bytes:
        raise Corrupt(f"Chunk {header.number} of {header.import_id} holds {len(body)} bytes, not {header.plain_bytes}.")
    return body


def pack(value: Any) -> bytes:
    return orjson.dumps(value)


def unpack(record: bytes) -> Any:
    return orjson.loads(record)


def understood(place: str, record: bytes, read: Callable[[bytes], Read]) -> Read | None:
    """What is no record of ours is told and passed over: nobody can be answered, and those behind it can."""
    try:
        return read(record)
    except Exception as error:
        observe("trouble", kind="record", error=f"{place}: {type(error).__name__}: {error}"[:1000])
        return None
