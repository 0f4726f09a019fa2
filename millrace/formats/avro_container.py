"""Reads and writes Avro container files: bytes in, the header and uncompressed blocks out. Refuses a damaged file, and says
where."""

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import zstandard

from millrace.formats.avro_weight import free_values
from millrace.formats.swelling import ROW_WEIGHT
from millrace.model.errors import Invalid, Refused, TooLarge, words_of

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
MAX_HEADER_BYTES = 1 << 20
MAX_HEADER_ENTRIES = 1000
MAX_SCHEMA_DEPTH = 200
MAX_BLOCK_BYTES = 64 << 20
CODECS = ("null", "deflate", "snappy", "zstandard")
_MAX_LONG_BYTES = 10
_CRC_BYTES = 4
_STEP = 1 << 20
_REMEDY = "Send the file again, whole; if that fails too, write it again."


class NeedsMoreBytes(Exception):
    """More bytes are needed. Only this package raises and catches it."""


@dataclass(frozen=True, slots=True)
class ContainerHeader:
    schema: dict[str, Any]
    codec: str
    sync: bytes
    # Of each row.
    free_values: int = 0

    @property
    def row_weight(self) -> int:
        return ROW_WEIGHT * (1 + self.free_values)

    def framed(self, name: str, codec: str = "null") -> bytes:
        """The header of a file with this codec, whose record has the name that its reader expects."""
        meta = {b"avro.schema": json.dumps({**self.schema, "name": name}).encode(), b"avro.codec": codec.encode()}
        pairs = b"".join(_sized(name) + _sized(value) for name, value in meta.items())
        return MAGIC + write_long(len(meta)) + pairs + b"\0" + self.sync

    def framed_block(self, rows: int, plain: bytes) -> bytes:
        return write_long(rows) + _sized(plain) + self.sync


@dataclass(slots=True)
class Reader:
    """Reads Avro's basic parts from the start of a buffer. Raises NeedsMoreBytes where the buffer ends too early."""

    buffer: bytearray
    at: int = 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.buffer) - self.at:
            raise NeedsMoreBytes
        self.at += size
        return bytes(memoryview(self.buffer)[self.at - size : self.at])

    def long(self) -> int:
        value = 0
        for number in range(_MAX_LONG_BYTES):
            octet = self.take(1)[0]
            value |= (octet & 127) << 7 * number
            if octet < 128:
                return (value >> 1) ^ -(value & 1)
        raise Invalid("It holds a number of more than 64 bits.")


def write_long(value: int) -> bytes:
    number, octets = value << 1, bytearray()
    while number > 127:
        octets.append(number & 127 | 128)
        number >>= 7
    return bytes([*octets, number])


def _sized(value: bytes) -> bytes:
    return write_long(len(value)) + value


def read_header(reader: Reader) -> ContainerHeader:
    if reader.take(len(MAGIC)) != MAGIC:
        raise Invalid("It does not begin like an Avro container file.", remedy="Name the file's true type.")
    meta = _read_meta(reader)
    codec = meta.get("avro.codec", b"null").decode("latin-1")
    if codec not in CODECS:
        raise Invalid(f"Its codec is {codec!r:.40}.", remedy=f"Write it with one of: {', '.join(CODECS)}.")
    try:
        schema = json.loads(meta.get("avro.schema", b""))
        # JSON can escape a lone surrogate. No name, message or file can hold one.
        json.dumps(schema, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise Invalid("Its schema is not readable JSON.") from error
    if not isinstance(schema, dict) or schema.get("type") != "record" or not isinstance(schema.get("fields"), list):
        raise Invalid("Its schema is not a record.", remedy="Write rows as Avro records.")
    if _is_deep(schema):
        raise Invalid(f"Its schema is nested deeper than {MAX_SCHEMA_DEPTH} levels.", remedy="Write flatter types.")
    return ContainerHeader(schema, codec, reader.take(SYNC_BYTES), free_values(schema))


def _is_deep(value: Any) -> bool:
    """Checks level by level, without recursion, so that later readers of the schema may recurse."""
    level = [value]
    for _ in range(MAX_SCHEMA_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
    return bool(level)


def _inside(value: Any) -> list[Any]:
    values = value.values() if isinstance(value, dict) else value
    return [inner for inner in values if isinstance(inner, (dict, list))]


def _read_meta(reader: Reader) -> dict[str, bytes]:
    meta: dict[str, bytes] = {}
    while count := reader.long():
        if count < 0:
            reader.long()
        if abs(count) + len(meta) > MAX_HEADER_ENTRIES:
            raise Invalid(f"Its header claims {abs(count)} entries.")
        for _ in range(abs(count)):
            name = reader.take(reader.long()).decode("latin-1")
            meta[name] = reader.take(reader.long())
    return meta


def inflate(codec: str, data: bytes) -> bytes:
    """A decompressed block. Refuses a block of more than MAX_BLOCK_BYTES without decompressing all of it."""
    try:
        plain = _inflate(codec, data)
    except (zlib.error, zstandard.ZstdError, pa.ArrowInvalid, OSError, NeedsMoreBytes) as error:
        raise Invalid(f"It cannot be decompressed ({codec}): {words_of(error)}.") from error
    if len(plain) > MAX_BLOCK_BYTES:
        raise _too_long()
    return plain


def _inflate(codec: str, data: bytes) -> bytes:
    if codec == "deflate":
        return zlib.decompressobj(wbits=-15).decompress(data, MAX_BLOCK_BYTES + 1)
    if codec == "zstandard":
        decoder = zstandard.ZstdDecompressor(max_window_size=MAX_BLOCK_BYTES)
        return decoder.stream_reader(data, read_across_frames=True).read(MAX_BLOCK_BYTES + 1)
    if codec == "snappy":
        return _unsnap(data[:-_CRC_BYTES], int.from_bytes(data[-_CRC_BYTES:], "big"))
    return data


def _unsnap(data: bytes, checksum: int) -> bytes:
    size = 0
    for number, octet in enumerate(data[:5]):
        size |= (octet & 127) << 7 * number
        if octet < 128:
            break
    if size > MAX_BLOCK_BYTES:
        raise _too_long()
    plain: bytes = pa.decompress(data, decompressed_size=size, codec="snappy", asbytes=True)
    if zlib.crc32(plain) != checksum:
        raise zlib.error("the checksum differs")
    return plain


def _too_long() -> TooLarge:
    return TooLarge(
        f"It decompresses to more than {MAX_BLOCK_BYTES >> 20} MiB.",
        remedy="Write the file with a smaller sync interval.",
    )


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows of a file. `end` is the offset in the file right behind them."""

    rows: int
    plain: bytes
    end: int


class BlockReader:
    """Calls `check` with the header as soon as it is complete."""

    def __init__(self, what: str, check: Callable[[ContainerHeader], None]) -> None:
        self.header: ContainerHeader | None = None
        self._what = what
        self._check = check
        self._buffer = bytearray()
        self._offset = 0
        self._number = 0
        self.read = 0

    def resume(self, header: ContainerHeader, offset: int, blocks: int) -> None:
        self.header, self._offset, self._number = header, offset, blocks
        self.read = offset

    def feed(self, piece: bytes) -> Iterator[Block]:
        view = memoryview(piece)
        for start in range(0, len(view), _STEP):
            self._buffer += view[start : start + _STEP]
            self.read += len(view[start : start + _STEP])
            if self.header is None:
                self._read_header()
            while self.header is not None and (block := self._next(self.header)):
                yield block

    def finish(self) -> None:
        if self._buffer and self.header is None:
            raise Invalid(f"{self._what} ends inside its Avro header.", remedy=_REMEDY)
        if self._buffer:
            raise Invalid(f"{self._what} ends inside Avro block {self._number + 1}.", remedy=_REMEDY)

    def _read_header(self) -> None:
        reader = Reader(self._buffer)
        try:
            header = read_header(reader)
        except NeedsMoreBytes:
            if len(self._buffer) > MAX_HEADER_BYTES:
                raise Invalid(
                    f"{self._what} has an Avro header of more than {MAX_HEADER_BYTES >> 20} MiB.",
                    remedy="Write it with a shorter schema and less metadata.",
                ) from None
            return
        except Refused as refused:
            message = f"{self._what} cannot be read. {refused.message}"
            raise type(refused)(message, remedy=refused.remedy or _REMEDY) from refused
        self._check(header)
        self.header = header
        self._drop(reader.at)

    def _next(self, header: ContainerHeader) -> Block | None:
        reader = Reader(self._buffer)
        try:
            rows, size = reader.long(), reader.long()
            if rows < 0 or not 0 <= size <= MAX_BLOCK_BYTES:
                raise Invalid(
                    f"It claims {rows} rows in {size} bytes; at most {MAX_BLOCK_BYTES >> 20} MiB are allowed."
                )
            data, sync = reader.take(size), reader.take(SYNC_BYTES)
            if sync != header.sync:
                raise Invalid("Its sync mark is not the file's.")
            plain = inflate(header.codec, data)
            if rows > max(1, len(plain)) and rows > _STEP:
                raise Invalid(f"It claims {rows} rows in {len(plain)} bytes.")
        except NeedsMoreBytes:
            return None
        except Refused as refused:
            message = f"{self._what} is damaged in Avro block {self._number + 1}. {refused.message}"
            raise type(refused)(message, remedy=refused.remedy or _REMEDY) from refused
        self._number += 1
        self._drop(reader.at)
        return Block(rows, plain, self._offset)

    def _drop(self, size: int) -> None:
        del self._buffer[:size]
        self._offset += size
