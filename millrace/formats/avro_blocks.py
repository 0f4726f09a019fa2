"""Bytes of an Avro container file in, its header and uncompressed blocks out. A damaged file is refused by block number."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from millrace.formats.avro_container import (
    MAX_BLOCK_BYTES,
    MAX_HEADER_BYTES,
    SYNC_BYTES,
    ContainerHeader,
    NeedsMoreBytes,
    Reader,
    inflate,
    read_header,
)
from millrace.model.errors import Invalid, Refused

_STEP = 1 << 20
_REMEDY = "Send the file again, whole; if that fails too, write it again."


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

    def resume(self, header: ContainerHeader, offset: int, blocks: int) -> None:
        self.header, self._offset, self._number = header, offset, blocks

    def feed(self, piece: bytes) -> Iterator[Block]:
        view = memoryview(piece)
        for start in range(0, len(view), _STEP):
            self._buffer += view[start : start + _STEP]
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
                raise Invalid(f"{self._what} has an Avro header of more than {MAX_HEADER_BYTES >> 20} MiB.") from None
            return
        except Refused as refused:
            raise type(refused)(f"{self._what} cannot be read. {refused.message}", remedy=refused.remedy) from refused
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
