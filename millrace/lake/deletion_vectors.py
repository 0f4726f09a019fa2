"""Deleted positions of a data file as Delta deletion vectors: roaring bitmaps in, descriptors and bytes out, and back.
Small vectors are inline in the log; the others of a commit share one file. Refuses a wrong magic number or checksum.
"""

import base64
import struct
import uuid
import zlib
from collections.abc import Mapping

from pyroaring import BitMap, BitMap64

from millrace.lake.actions import AddFile, DeletionVector
from millrace.lake.store import Store
from millrace.model.errors import Corrupt

# A remove action repeats its file's vector in the log. Above this size a reference is cheaper than two copies.
INLINE_LIMIT_BYTES = 400

_MAGIC = struct.pack("<i", 1681511377)
# One 32-bit bitmap with the high word 0: a data file never has 2^32 rows.
_SINGLE_BITMAP = struct.pack("<qI", 1, 0)
_FILE_FORMAT = b"\x01"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_RFC1924 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_Z85, _FROM_Z85 = bytes.maketrans(_RFC1924, _Z85), bytes.maketrans(_Z85, _RFC1924)
_UUID_CHARACTERS = 20


def store_vectors(store: Store, dead: Mapping[str, BitMap]) -> dict[str, DeletionVector]:
    """Descriptors of each file's deleted positions. Writes their bytes where the descriptors point to."""
    identity, body, described = uuid.uuid4(), bytearray(_FILE_FORMAT), {}
    for path, positions in dead.items():
        data = encode(positions)
        if len(data) <= INLINE_LIMIT_BYTES:
            described[path] = DeletionVector("i", _z85(data), None, len(data), len(positions))
            continue
        described[path] = DeletionVector("u", _z85(identity.bytes), len(body), len(data), len(positions))
        body += struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    if len(body) > len(_FILE_FORMAT):
        store.write(_file_name("", identity), bytes(body))
    return described


def load_vector(store: Store, vector: DeletionVector) -> BitMap:
    """The deleted positions of a descriptor."""
    if vector.storage == "i":
        positions = decode(_unz85(vector.location)[: vector.size])
    elif vector.storage == "u":
        positions = decode(_read_from_file(store, vector))
    else:
        raise Corrupt(
            f"Deletion vector {vector.identity} of {store.where} has the storage type {vector.storage!r}.",
            remedy="Only 'i' and 'u' can be read.",
        )
    if len(positions) != vector.cardinality:
        raise Corrupt(
            f"Deletion vector {vector.identity} has {len(positions)} positions, not {vector.cardinality}.",
            remedy=f"Restore the table at {store.where}.",
        )
    return positions


def dead_positions(store: Store, file: AddFile) -> BitMap:
    return load_vector(store, file.deletion_vector) if file.deletion_vector else BitMap()


def vector_file(vector: DeletionVector) -> str | None:
    """The name of the file a descriptor points into."""
    if vector.storage != "u":
        return None
    prefix, encoded = vector.location[:-_UUID_CHARACTERS], vector.location[-_UUID_CHARACTERS:]
    return _file_name(prefix, uuid.UUID(bytes=_unz85(encoded)))


def encode(positions: BitMap) -> bytes:
    return _MAGIC + _SINGLE_BITMAP + bytes(positions.serialize())


def decode(data: bytes) -> BitMap:
    if data[:4] != _MAGIC:
        raise Corrupt(f"A deletion vector starts with {data[:4].hex()}, not the portable roaring magic {_MAGIC.hex()}.")
    if data[4:16] == _SINGLE_BITMAP:
        return BitMap.deserialize(data[16:])
    return BitMap(BitMap64.deserialize(data[4:]))


def _read_from_file(store: Store, vector: DeletionVector) -> bytes:
    name, offset = vector_file(vector), vector.offset or 0
    assert name is not None
    content = store.map(name)
    data = bytes(content[offset + 4 : offset + 4 + vector.size])
    (length,) = struct.unpack(">i", content[offset : offset + 4])
    (checksum,) = struct.unpack(">I", content[offset + 4 + vector.size : offset + 8 + vector.size])
    if length != vector.size or checksum != zlib.crc32(data):
        raise Corrupt(
            f"Deletion vector {name} of {store.where} is damaged at offset {offset}.", remedy="Restore the file."
        )
    return data


def _file_name(prefix: str, identity: uuid.UUID) -> str:
    name = f"deletion_vector_{identity}.bin"
    return f"{prefix}/{name}" if prefix else name


def _z85(data: bytes) -> str:
    padded = data + bytes(-len(data) % 4)
    return base64.b85encode(padded).translate(_TO_Z85).decode()


def _unz85(text: str) -> bytes:
    return base64.b85decode(text.encode().translate(_FROM_Z85))
