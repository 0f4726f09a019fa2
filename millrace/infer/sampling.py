"""A file in, a sample of its plain bytes out: its head, and pieces evenly spaced over the rest. Decompresses gzip and zstd.

A file that is not larger than the sample is read whole. The length of a compressed file is unknown, so its pieces are at
growing distances."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from millrace.formats.decompress import MAGIC, BrokenOff, Decompress
from millrace.model.errors import Invalid

HEAD_BYTES = 16 << 20
PIECE_BYTES = 1 << 20
PIECES = 48
_READ_BYTES = 1 << 20
_MAGIC_BYTES = 4


@dataclass(frozen=True, slots=True)
class FileSample:
    """`pieces` come from behind the head, in order. Each begins at any even offset. Empty if the head is the whole file."""

    head: bytes
    pieces: tuple[bytes, ...] = ()

    @property
    def is_whole(self) -> bool:
        return not self.pieces

    @property
    def size(self) -> int:
        return len(self.head) + sum(map(len, self.pieces))


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
            file.seek(_even(head_bytes + int(number * stride)))
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


def _even(offset: int) -> int:
    """An even offset, because a UTF-16 unit has two octets."""
    return offset - offset % 2
