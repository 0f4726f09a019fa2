"""UTF-16, Latin-1 and Windows-1252 in, UTF-8 out, piece by piece; UTF-8 passes unchanged. Refuses bytes that the encoding
does not have."""

import codecs
from collections.abc import Iterator

from millrace.model.errors import Invalid

_MARKS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
# Nearly all writers that write no byte order mark write little-endian.
_UNMARKED = {"utf-16": "utf-16-le"}
_SINGLE_OCTETS = ("latin-1", "windows-1252")
_STEP = 256 << 10


class Transcode:
    """A stage that makes UTF-8. UTF-8 passes, valid or not. A UTF-16 mark overrides the declared encoding, except one with
    an octet for each character."""

    def __init__(self, encoding: str, what: str) -> None:
        self._encoding = encoding
        self._what = what
        self._head = b""
        self._sniffing = encoding not in _SINGLE_OCTETS
        self._line = 1
        self._decoder = self._new_decoder()

    @property
    def transparent(self) -> bool:
        return self._encoding == "utf-8"

    def feed(self, piece: bytes) -> Iterator[bytes]:
        if self._sniffing:
            self._head += piece
            if len(self._head) >= 2:
                yield from self._start()
        elif self.transparent:
            yield piece
        else:
            for start in range(0, len(piece), _STEP):
                yield self._decode(piece[start : start + _STEP], final=False)

    def finish(self) -> Iterator[bytes]:
        if self._sniffing:
            yield from self._start()
        if not self.transparent:
            yield self._decode(b"", final=True)

    def _start(self) -> Iterator[bytes]:
        head, self._head, self._sniffing = self._head, b"", False
        marked = _MARKS.get(head[:2])
        self._encoding = marked or _UNMARKED.get(self._encoding, self._encoding)
        self._decoder = self._new_decoder()
        yield from self.feed(head[2:] if marked else head)

    def _new_decoder(self) -> codecs.IncrementalDecoder:
        return codecs.getincrementaldecoder(self._encoding)()

    def _decode(self, piece: bytes, *, final: bool) -> bytes:
        try:
            text = self._decoder.decode(piece, final)
        except UnicodeDecodeError as error:
            line = self._line + error.object[: error.start].decode(self._encoding, "ignore").count("\n")
            raise Invalid(
                f"{self._what} is not {self._encoding.upper()} in line {line}: {error.reason}.",
                remedy="Declare the file's encoding, or send UTF-8.",
            ) from error
        self._line += text.count("\n")
        return text.encode()
