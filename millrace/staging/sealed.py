"""Files of client apps at rest, where the agreement asks for encryption: plain bytes in, sealed frames out, and back.

A sealed file begins with a plain header: which data key sealed it, and for whom. Frames follow, each with its sealed length,
its plain length and its sealed bytes, bound to its number. The last frame is marked as the last, so that a truncated file
does not open. A log may end anywhere: none of its frames is marked."""

import io
import os
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

import orjson

from millrace.atomic import replacing
from millrace.failpoint import reach
from millrace.model.errors import Corrupt
from millrace.outbound.objects import RangeReader
from millrace.seal.cipher import Seal
from millrace.seal.keyring import Keyring

FRAME_BYTES = 4 << 20
_MAGIC = b"MRAPPS1\n"
_HEAD = struct.Struct("<8sH")
_LENGTHS = struct.Struct("<II")
# No table can have this name.
_PLACE = "client app"
_TO_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


def own_seal(keys: Keyring, tenant: str, key: str) -> Seal:
    """By a data key for this alone."""
    return keys.seal(tenant, _PLACE, keys.new(tenant, key), key)


def hour_seal(keys: Keyring, tenant: str, owner: str) -> Seal:
    """By the data key of the hour, for data that belongs to no import."""
    return keys.seal(tenant, _PLACE, keys.of_this_hour(tenant), owner)


def head(seal: Seal, log: str = "") -> bytes:
    """The header of a sealed file. `log` tells logs apart that share a seal."""
    words = orjson.dumps({"key": seal.key, "owner": seal.owner, "log": log})
    return _HEAD.pack(_MAGIC, len(words)) + words


def frame(seal: Seal, plain: bytes, part: str) -> bytes:
    sealed = seal.close(plain, part)
    return _LENGTHS.pack(len(sealed), len(plain)) + sealed


class Sealer:
    """Writes a sealed file in frames of one size; only `finish` makes it whole."""

    def __init__(self, file: BinaryIO, seal: Seal) -> None:
        self._file, self._seal = file, seal
        self._left = bytearray()
        self._number = 0
        file.write(head(seal))

    def write(self, piece: bytes) -> None:
        self._left += piece
        while len(self._left) > FRAME_BYTES:
            self._file.write(frame(self._seal, bytes(self._left[:FRAME_BYTES]), str(self._number)))
            del self._left[:FRAME_BYTES]
            self._number += 1

    def finish(self) -> None:
        self._file.write(frame(self._seal, bytes(self._left), _last(self._number)))


@dataclass(frozen=True, slots=True)
class _Plan:
    """The header of a sealed file, readable without a key."""

    key: str
    owner: str
    log: str
    places: list[tuple[int, int]]
    sizes: list[int]
    is_torn: bool


@dataclass(frozen=True, slots=True)
class SealedFile:
    """Can be sent like a file; `name` is its original name."""

    path: Path
    name: str
    tenant: str
    keys: Keyring

    def open(self, mode: str = "rb", /) -> BinaryIO:
        assert mode == "rb"
        return io.BufferedReader(_Unsealed(self.path, self.tenant, self.keys))


class _Unsealed(RangeReader):
    """Reads the plain bytes with one frame in memory."""

    def __init__(self, path: Path, tenant: str, keys: Keyring) -> None:
        self._file = path.open("rb")
        self.name = str(path)
        self._opened = -1, b""
        try:
            self._plan = _plan(self._file)
            if self._plan.is_torn or not self._plan.places:
                raise Corrupt(f"{path.name} has been cut.")
            self._seal = keys.seal(tenant, _PLACE, self._plan.key, self._plan.owner)
            self._ends = list(accumulate(self._plan.sizes))
            super().__init__(self._piece, self._ends[-1])
            # A file that was truncated between two frames fails here, before anything of it has been read.
            self._open(len(self._ends) - 1)
        except BaseException:
            self._file.close()
            raise

    def _piece(self, start: int, length: int) -> memoryview:
        number = bisect_right(self._ends, start)
        plain = self._open(number)
        begins = self._ends[number] - len(plain)
        # A view: copying the rest for each small read would take longer than everything else.
        return memoryview(plain)[start - begins :][:length]

    def close(self) -> None:
        super().close()
        self._file.close()

    def _open(self, number: int) -> bytes:
        if self._opened[0] != number:
            part = _last(number) if number == len(self._ends) - 1 else str(number)
            plain = self._seal.open(_sealed(self._file, self._plan.places[number]), part)
            if len(plain) != self._plan.sizes[number]:
                raise Corrupt(f"{self.name} is not as long as it says.")
            self._opened = number, plain
        return self._opened[1]


def plain_size(path: Path) -> int:
    with path.open("rb") as file:
        return sum(_plan(file).sizes)


def owner_in(path: Path) -> str:
    """The owner that it was sealed for."""
    with path.open("rb") as file:
        return _words(file)["owner"]


def log_tail(path: Path, tenant: str, keys: Keyring, most: int) -> Iterator[bytes]:
    """The last plain bytes of a sealed log. A log that cannot be opened is refused before the first piece."""
    # Kept open: while the program runs, a rotation may give its name to another file.
    file = path.open("rb")
    try:
        plan = _plan(file)
        seal = keys.seal(tenant, _PLACE, plan.key, plan.owner)
    except BaseException:
        file.close()
        raise
    return _pieces(file, plan, seal, most)


def _pieces(file: BinaryIO, plan: _Plan, seal: Seal, most: int) -> Iterator[bytes]:
    left = sum(plan.sizes)
    with file:
        for number, (place, size) in enumerate(zip(plan.places, plan.sizes, strict=True)):
            if left - size < most:
                plain = seal.open(_sealed(file, place), log_part(plan.log, number))
                yield plain[max(left - most, 0) :]
            left -= size


def log_part(log: str, number: int) -> str:
    return f"{log}/{number}"


def seal_file(plain: Path, sealed: Path, seal: Seal) -> None:
    """Replaces the plain file by a sealed one. Repeated after a crash it finishes the work."""
    if not sealed.exists():
        with replacing(sealed) as file:
            _seal_into(file, plain, seal)
    reach("staging_after_sealed")
    plain.unlink(missing_ok=True)


def write_sealed(plain: Path, sealed: Path, seal: Seal) -> None:
    with sealed.open("wb") as file:
        _seal_into(file, plain, seal)


def _seal_into(file: BinaryIO, plain: Path, seal: Seal) -> None:
    with os.fdopen(os.open(plain, _TO_READ), "rb") as source:
        sealer = Sealer(file, seal)
        while piece := source.read(FRAME_BYTES):
            sealer.write(piece)
        sealer.finish()
        reach("staging_before_sealed")
        make_safe(file, os.fstat(source.fileno()))


def make_safe(file: BinaryIO, original: os.stat_result) -> None:
    """Gives the copy the time of its original and flushes it to the disk: the original is removed next."""
    file.flush()
    os.utime(file.fileno(), ns=(original.st_atime_ns, original.st_mtime_ns))
    os.fsync(file.fileno())


def _last(number: int) -> str:
    return f"{number}.last"


def _sealed(file: BinaryIO, place: tuple[int, int]) -> bytes:
    file.seek(place[0])
    return file.read(place[1])


def _words(file: BinaryIO) -> dict[str, str]:
    try:
        magic, length = _HEAD.unpack(file.read(_HEAD.size))
        words = orjson.loads(file.read(length))
        found = {name: str(words[name]) for name in ("key", "owner", "log")}
    except (struct.error, orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise Corrupt(f"{file.name} is no sealed file.") from error
    if magic != _MAGIC:
        raise Corrupt(f"{file.name} is no sealed file.")
    return found


def _plan(file: BinaryIO) -> _Plan:
    words, size = _words(file), os.fstat(file.fileno()).st_size
    places: list[tuple[int, int]] = []
    sizes: list[int] = []
    at = file.tell()
    while at + _LENGTHS.size <= size:
        length, plain = _LENGTHS.unpack(file.read(_LENGTHS.size))
        if at + _LENGTHS.size + length > size:
            break
        places.append((at + _LENGTHS.size, length))
        sizes.append(plain)
        at = file.seek(length, os.SEEK_CUR)
    return _Plan(words["key"], words["owner"], words["log"], places, sizes, at != size)
