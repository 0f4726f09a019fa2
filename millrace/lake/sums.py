"""Checksums of files of the log. An entry's first line tells one of its other lines, so a line that is missing or was changed
is found. A checkpoint has one of the whole file before its footer, where no reader of Parquet looks. Other writers have none.
"""

import hashlib
import struct
from typing import Any

import orjson

from millrace.lake.actions import Action

_INFORMATION, _SUM = "commitInfo", "millraceSum"
_BLOCK = struct.Struct("<8s16s")
_MARK = b"MRSUM001"
# The length of the footer, and the format's name.
_END = struct.Struct("<I4s")


def summed(information: dict[str, Any], lines: bytes) -> bytes:
    """`lines` are the other actions, each with its line end."""
    return orjson.dumps({_INFORMATION: {**information, _SUM: _sum(lines)}}) + b"\n" + lines


def refuse_unless_whole(first: Action, lines: bytes | memoryview) -> None:
    """ValueError if the lines after the first one are not those that were written."""
    information = first.get(_INFORMATION)
    expected = information.get(_SUM) if isinstance(information, dict) else None
    if expected is not None and expected != _sum(lines):
        raise ValueError("its lines are not those that its checksum was made of")


def summed_parquet(data: bytes) -> bytes:
    """The Parquet file with its checksum. Its pages stay where they are."""
    at = len(data) - _END.size - _END.unpack_from(data, len(data) - _END.size)[0]
    return data[:at] + _BLOCK.pack(_MARK, _digest(data)) + data[at:]


def is_summed_parquet(data: bytes) -> bool:
    """Whether it has a checksum. ValueError if that is of other bytes."""
    if len(data) < _BLOCK.size + _END.size:
        return False
    at = len(data) - _END.size - _END.unpack_from(data, len(data) - _END.size)[0] - _BLOCK.size
    mark, expected = _BLOCK.unpack_from(data, at) if at >= 0 else (b"", b"")
    if mark != _MARK:
        return False
    content = memoryview(data)
    if expected != _digest(content[:at], content[at + _BLOCK.size :]):
        raise ValueError("its bytes are not those that its checksum was made of")
    return True


def _sum(lines: bytes | memoryview) -> str:
    return _digest(lines).hex()


def _digest(*parts: bytes | memoryview) -> bytes:
    summing = hashlib.blake2b(digest_size=16)
    for part in parts:
        summing.update(part)
    return summing.digest()
