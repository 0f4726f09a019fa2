"""What a record of raw-input is, learnt from its bytes: a length, a stamp in JSON, the compressed rows."""

import json
import struct
from typing import Any

import zstandard

_PREFIX = struct.Struct("<BI")
MOST_PLAIN_BYTES = 64 << 20


def open_chunk(record: bytes) -> tuple[dict[str, Any], bytes]:
    """The stamp and the plain rows, or the sealed ones; an empty stamp if the record is of another kind."""
    try:
        _, length = _PREFIX.unpack_from(record)
        stamp = json.loads(record[_PREFIX.size : _PREFIX.size + length])
        payload = record[_PREFIX.size + length :]
        if stamp.get("key"):
            return stamp, payload
        plain = zstandard.ZstdDecompressor().decompress(payload, max_output_size=MOST_PLAIN_BYTES) if payload else b""
    except (ValueError, struct.error, zstandard.ZstdError):
        return {}, record
    return stamp, plain
