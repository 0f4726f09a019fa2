"""gzip (many members) and zstd (many frames) in, plain bytes out, in bounded steps. Refuses garbage and bombs.

A zstd window may have 8 MiB, as RFC 8878 advises."""

import zlib
from collections.abc import Iterator
from typing import Any

import zstandard

from millrace.formats.swelling import refuse_bomb
from millrace.model.errors import Invalid

MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
# What people send by mistake. No text begins so.
_STRANGE = {
    b"PK\x03\x04": "a zip archive or an Excel workbook",
    b"\xd0\xcf\x11\xe0": "a document of old Office, such as .xls",
}
_SNIFFED = 4
_OUT_STEP = 1 << 20
_ZSTD_WINDOW = 8 << 20
# 512 octets of zstd give at most 16 MiB: a block needs 4 octets and gives 128 KiB. The decoder has no limit of its own.
_IN_STEP = {"gzip": 16 << 10, "zstd": 512}


class BrokenOff(Exception):
    """The stream ended before its end mark. `cut.py` and `infer/sampling.py` turn it into a refusal."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Decompress:
    """A stage that decompresses. `kind` None: the first bytes decide, and plain bytes pass unchanged."""

    def __init__(self, kind: str | None, what: str) -> None:
        if kind not in (None, *_IN_STEP):
            raise Invalid(f"{what} has the unknown compression {kind!r}.", remedy=f"Known: {', '.join(_IN_STEP)}.")
        self._kind = kind
        self._what = what
        self._head = b""
        self._sniffing = True
        # The decoder of the gzip member or zstd frame that has begun.
        self._member: Any = None
        self._read = self._written = 0

    @property
    def transparent(self) -> bool:
        return self._kind is None

    def feed(self, piece: bytes) -> Iterator[bytes]:
        if self._sniffing:
            self._head += piece
            if len(self._head) >= _SNIFFED:
                yield from self._start()
        elif self._kind is None:
            yield piece
        else:
            yield from self._inflate(piece)

    def finish(self) -> Iterator[bytes]:
        if self._sniffing:
            yield from self._start()
        if self._member is not None and self._kind is not None:
            raise BrokenOff(self._kind)

    def _start(self) -> Iterator[bytes]:
        head, self._head, self._sniffing = self._head, b"", False
        if self._kind is None:
            self._kind = next((kind for magic, kind in MAGIC.items() if head.startswith(magic)), None)
            strange = next((kind for magic, kind in _STRANGE.items() if head.startswith(magic)), None)
            if strange is not None:
                remedy = "Save a sheet as CSV; unpack an archive and send the files in it."
                raise Invalid(f"{self._what} is {strange}.", remedy=remedy)
        if head:
            yield from self.feed(head)

    def _inflate(self, piece: bytes) -> Iterator[bytes]:
        step = _IN_STEP[str(self._kind)]
        for start in range(0, len(piece), step):
            rest = piece[start : start + step]
            self._read += len(rest)
            while rest := self._between_members(rest):
                yield from self._inflate_step(rest)
                rest = self._end_member()

    def _between_members(self, rest: bytes) -> bytes:
        """Skips zeros behind the stream, as gzip's own tools do. Tapes and some writers pad with them."""
        return rest.lstrip(b"\0") if self._member is None and self._kind == "gzip" and self._written else rest

    def _inflate_step(self, rest: bytes) -> Iterator[bytes]:
        try:
            for plain in self._plain(rest):
                self._written += len(plain)
                refuse_bomb(self._what, "decompresses", self._read, self._written)
                if plain:
                    yield plain
        except (zlib.error, zstandard.ZstdError) as error:
            raise Invalid(
                f"{self._what} is no readable {self._kind} stream near octet {self._read}: {error}.",
                remedy=f"Test it with '{self._kind} -t', and send it without compression if it is not compressed.",
            ) from error

    def _plain(self, data: bytes) -> Iterator[bytes]:
        if self._kind == "zstd":
            self._member = self._member or zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
            yield self._member.decompress(data)
            return
        self._member = self._member or zlib.decompressobj(wbits=31)
        # Behind its end a member leaves its last tail as it was.
        while data and not self._member.eof:
            yield self._member.decompress(data, _OUT_STEP)
            data = self._member.unconsumed_tail

    def _end_member(self) -> bytes:
        if not self._member.eof:
            return b""
        rest, self._member = bytes(self._member.unused_data), None
        return rest
