"""Deleted positions of a data file as Delta deletion vectors: roaring bitmaps in, descriptors and bytes out, and back.
The vectors of a commit share one file. Reads those of other engines, too. Refuses a wrong magic number or checksum.
"""

import base64
import struct
import uuid
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pyroaring import BitMap

from millrace.lake.actions import AddFile, DeletionVector
from millrace.lake.bounds import OURS, too_large
from millrace.lake.roaring import checked_positions
from millrace.lake.store import Store
from millrace.model.errors import Corrupt

MOST_TEXT = 100
# So many vectors up to this size stay in memory.
MOST_KEPT, SMALL_BYTES = 1024, 8 << 10

_MAGIC = struct.pack("<i", 1681511377)
# One 32-bit bitmap with the high word 0: a data file never has 2^32 rows.
_SINGLE_BITMAP = struct.pack("<qI", 1, 0)
_FILE_FORMAT = b"\x01"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_RFC1924 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_Z85, _FROM_Z85 = bytes.maketrans(_RFC1924, _Z85), bytes.maketrans(_Z85, _RFC1924)
_UUID_CHARACTERS = 20
# The oldest come first.
_KEPT: dict[tuple[Path, DeletionVector], BitMap] = {}


def store_vectors(store: Store, dead: Mapping[str, BitMap]) -> dict[str, DeletionVector]:
    """Descriptors of each file's deleted positions. Writes their bytes where the descriptors point to."""
    identity, body, described = uuid.uuid4(), bytearray(_FILE_FORMAT), {}
    for path, positions in dead.items():
        data = encode(positions)
        described[path] = DeletionVector("u", _z85(identity.bytes), len(body), len(data), len(positions))
        body += struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    if len(body) > len(_FILE_FORMAT):
        store.write(_file_name("", identity), bytes(body))
    return described


def load_vector(store: Store, vector: DeletionVector) -> BitMap:
    """The deleted positions of a descriptor."""
    most = store.bounds.file_rows
    if vector.cardinality > most or vector.size > store.bounds.vector_bytes:
        raise too_large(
            store.where,
            f"Deletion vector {vector.identity[:MOST_TEXT]}",
            f"marks {vector.cardinality} rows in {vector.size} bytes; {most} rows are read at most",
        )
    try:
        read = _small if vector.size <= SMALL_BYTES else _loaded
        try:
            return read(store, vector)
        except (ValueError, struct.error):
            name = vector_file(store, vector)
            if name is None or not store.renew(name):
                raise
            return read(store, vector)
    except FileNotFoundError as error:
        raise _damaged(store, vector, "its file is missing") from error
    except (ValueError, struct.error) as error:
        raise _damaged(store, vector, str(error)) from error


def _small(store: Store, vector: DeletionVector) -> BitMap:
    """A vector never changes, and a commit asks for those of its files more than once. Nobody changes the bitmap either."""
    this = store.root, vector
    known = _KEPT.get(this)
    if known is None:
        known = _KEPT[this] = _loaded(store, vector)
        if len(_KEPT) > MOST_KEPT:
            with suppress(KeyError, StopIteration, RuntimeError):
                del _KEPT[next(iter(_KEPT))]
    return known


def _loaded(store: Store, vector: DeletionVector) -> BitMap:
    if vector.storage == "i":
        positions = decode(_unz85(vector.location)[: vector.size], vector.cardinality)
    elif vector.storage in ("u", "p"):
        positions = decode(_read_from_file(store, vector), vector.cardinality)
    else:
        raise Corrupt(
            f"Deletion vector {vector.identity[:MOST_TEXT]} of {store.where} has the storage type {vector.storage[:9]!r}.",
            remedy="Only 'i', 'u' and 'p' can be read.",
        )
    if len(positions) != vector.cardinality:
        raise _damaged(store, vector, f"it has {len(positions)} positions, not {vector.cardinality}")
    return positions


def _damaged(store: Store, vector: DeletionVector, why: str) -> Corrupt:
    return Corrupt(
        f"Deletion vector {vector.identity[:MOST_TEXT]} of {store.where} is damaged: {why}.",
        remedy=f"Restore the table at {store.where} from a copy, or rewrite the file that it belongs to.",
    )


def dead_positions(store: Store, file: AddFile) -> BitMap:
    return load_vector(store, file.deletion_vector) if file.deletion_vector else BitMap()


def vector_file(store: Store, vector: DeletionVector) -> str | None:
    """The name of the table's file that a descriptor points into; None if it points into none."""
    if vector.storage == "p":
        return store.within(vector.location)
    if vector.storage != "u":
        return None
    prefix, encoded = vector.location[:-_UUID_CHARACTERS], vector.location[-_UUID_CHARACTERS:]
    return _file_name(prefix, uuid.UUID(bytes=_unz85(encoded)))


def encode(positions: BitMap) -> bytes:
    return _MAGIC + _SINGLE_BITMAP + bytes(positions.serialize())


def decode(data: bytes, most: int = OURS.file_rows) -> BitMap:
    """ValueError if it is damaged, or has more than `most` positions."""
    if data[:4] != _MAGIC:
        raise ValueError(f"it starts with {data[:4].hex()}, not the portable roaring magic {_MAGIC.hex()}")
    (bitmaps,) = struct.unpack_from("<q", data, 4)
    if bitmaps == 0:
        return BitMap()
    if data[4:16] != _SINGLE_BITMAP:
        raise ValueError("it marks rows behind the first 2^32")
    checked_positions(data[16:], most)
    return BitMap.deserialize(data[16:])


def _read_from_file(store: Store, vector: DeletionVector) -> bytes:
    name, offset = vector_file(store, vector), vector.offset or 0
    if name is None:
        raise Corrupt(
            f"Deletion vector {vector.identity[:MOST_TEXT]} of {store.where} is not in the table's folder.",
            remedy="Rewrite the files that it belongs to with the engine that wrote them (REORG TABLE … APPLY (PURGE)).",
        )
    content = store.map(name)
    data = bytes(content[offset + 4 : offset + 4 + vector.size])
    (length,) = struct.unpack_from(">i", content, offset)
    (checksum,) = struct.unpack_from(">I", content, offset + 4 + vector.size)
    if length != vector.size or checksum != zlib.crc32(data):
        raise ValueError(f"{name} has other bytes at {offset} than were written")
    return data


def _file_name(prefix: str, identity: uuid.UUID) -> str:
    name = f"deletion_vector_{identity}.bin"
    return f"{prefix}/{name}" if prefix else name


def _z85(data: bytes) -> str:
    padded = data + bytes(-len(data) % 4)
    return base64.b85encode(padded).translate(_TO_Z85).decode()


def _unz85(text: str) -> bytes:
    return base64.b85decode(text.encode().translate(_FROM_Z85))
