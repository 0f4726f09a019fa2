"""A file in, a sample of its plain bytes out: its head, and pieces evenly spaced over the rest. Decompresses gzip and zstd.

A file that is not larger than the sample is read whole. The length of a compressed file is unknown, so its pieces are at
growing distances."""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from millrace.formats.decompress import MAGIC, BrokenOff, Decompress
from millrace.model.errors import Invalid

HEAD_BYTES = 16 << 20
PIECE_BYTES = 1 << 20
PIECES = 48
_READ_BYTES = 1 << 20
_MAGIC_BYTES = 4
UTF8, LATIN1, WINDOWS, UTF16 = "utf-8", "latin-1", "windows-1252", "utf-16"
# In Latin-1 these octets are control characters, which nobody writes. Windows-1252 has signs there, except for five.
_NOT_WINDOWS = b"\x81\x8d\x8f\x90\x9d"
_ALL_BUT_CONTROLS = bytes(octet for octet in range(256) if not 0x80 <= octet < 0xA0)
_LOOKED_AT = 1 << 16
# In UTF-16 text at least this share of the even or of the odd octets is NUL, and nearly none of the others.
_MANY, _FEW = 0.2, 0.02
_LONGEST_LETTER = 4
_BROKEN_SHARE = 0.01
_BOM = codecs.BOM_UTF8


@dataclass(frozen=True, slots=True)
class FileSample:
    """`pieces` come from behind the head, in order. Each begins at any even offset. Empty if the head is the whole file."""

    head: bytes
    pieces: tuple[bytes, ...] = ()

    @property
    def is_whole(self) -> bool:
        return not self.pieces


def compression_of(path: Path) -> str | None:
    with path.open("rb") as file:
        start = file.read(_MAGIC_BYTES)
    return next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), None)


def plain_bytes(path: Path) -> Iterator[bytes]:
    """The file's bytes in pieces, decompressed where they are compressed."""
    what = f"The file {path.name!r:.120}"
    stage = Decompress(None, what)
    try:
        with path.open("rb") as file:
            while piece := file.read(_READ_BYTES):
                yield from stage.feed(piece)
        yield from stage.finish()
    except BrokenOff as broken:
        raise Invalid(
            f"{what} ends in the middle of the {broken.kind} stream.", remedy="Get the whole file."
        ) from broken


def sample_of(
    path: Path, head_bytes: int = HEAD_BYTES, piece_bytes: int = PIECE_BYTES, pieces: int = PIECES
) -> FileSample:
    if compression_of(path) is not None:
        return _streamed(path, head_bytes, piece_bytes, pieces)
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= head_bytes + pieces * piece_bytes:
            return FileSample(file.read())
        head = file.read(head_bytes)
        # The last piece ends at the end of the file.
        stride = (size - head_bytes - piece_bytes) / (pieces - 1)
        found = []
        for number in range(pieces):
            # An even offset, because a UTF-16 unit has two octets.
            file.seek((head_bytes + int(number * stride)) // 2 * 2)
            found.append(file.read(piece_bytes))
    return FileSample(head, tuple(found))


def _streamed(path: Path, head_bytes: int, piece_bytes: int, pieces: int) -> FileSample:
    blocks = _blocks(plain_bytes(path), head_bytes, piece_bytes)
    head = next(blocks, b"")
    kept: list[bytes] = []
    stride, last = 1, b""
    for number, block in enumerate(blocks):
        last = block
        if number % stride == 0:
            kept.append(block)
            last = b""
        if len(kept) == pieces:
            # Drop every second piece, and keep half as many from now on.
            kept, stride = kept[::2], stride * 2
    if not kept:
        return FileSample(head)
    if stride == 1:
        return FileSample(b"".join([head, *kept]))
    return FileSample(head, (*kept, last) if last else tuple(kept))


def _blocks(given: Iterator[bytes], first: int, size: int) -> Iterator[bytes]:
    """The bytes in one block of size `first`, then in blocks of `size`."""
    held = bytearray()
    wanted = first
    for piece in given:
        held += piece
        while len(held) >= wanted:
            yield bytes(held[:wanted])
            del held[:wanted]
            wanted = size
    if held:
        yield bytes(held)


def encoding_of(sample: FileSample) -> str:
    """The sample's encoding, by the name that tables declare."""
    head = sample.head
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return UTF16
    octets = np.frombuffer(head[: min(len(head) - len(head) % 2, _LOOKED_AT)], np.uint8)
    if octets.size:
        first, second = (octets[0::2] == 0).mean(), (octets[1::2] == 0).mean()
        if second >= _MANY and first <= _FEW:
            return "utf-16-le"
        if first >= _MANY and second <= _FEW:
            return "utf-16-be"
    return UTF8 if _is_mostly_utf8(sample) else western_encoding(sample)


def western_encoding(sample: FileSample) -> str:
    """Of text with an octet for each letter: Windows-1252 if it has signs such as the euro, which Latin-1 lacks."""
    parts = (sample.head, *sample.pieces)
    controls = {octet for part in parts for octet in part.translate(None, _ALL_BUT_CONTROLS)}
    return WINDOWS if controls and controls.isdisjoint(_NOT_WINDOWS) else LATIN1


def as_utf8(sample: FileSample, encoding: str) -> FileSample:
    """UTF-8 stays unchanged, valid or not. Characters that are split at the edges of pieces are lost."""
    if encoding == UTF8:
        return FileSample(_without_mark(sample.head), sample.pieces)
    precise = encoding
    if encoding == UTF16:
        precise = "utf-16-be" if sample.head.startswith(codecs.BOM_UTF16_BE) else "utf-16-le"
    head, *pieces = (part.decode(precise, "replace").encode() for part in (sample.head, *sample.pieces))
    return FileSample(_without_mark(head), tuple(pieces))


def _without_mark(text: bytes) -> bytes:
    while text.startswith(_BOM):
        text = text[len(_BOM) :]
    return text


def _is_mostly_utf8(sample: FileSample) -> bool:
    """Whether invalid bytes are damage: few of them among many valid characters. Otherwise it is another encoding."""
    broken = beyond = 0
    for part in (sample.head, *sample.pieces):
        if not part.isascii():
            text = part.decode(UTF8, "replace")
            beyond += len(text) - len(text.encode("ascii", "ignore"))
            broken += text.count("\ufffd") - part.count("\ufffd".encode())
    # The edges of pieces may split characters.
    edges = 0 if sample.is_whole else 2 * _LONGEST_LETTER * len(sample.pieces)
    return broken <= beyond * _BROKEN_SHARE + edges
