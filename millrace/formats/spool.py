"""Keeps bytes on disk until all have arrived, then reads them from any position. The key that seals them is in this process
alone: after a crash nobody can read the file."""

import io
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SEGMENT_BYTES = 256 << 10
_TAG_BYTES = 16


class Spool(io.RawIOBase):
    """A file that is written once from its start, and then read."""

    def __init__(self, folder: Path | None) -> None:
        super().__init__()
        self._cipher = AESGCM(AESGCM.generate_key(256))
        self._file = tempfile.TemporaryFile(dir=folder, prefix="spool-", buffering=0)  # noqa: SIM115
        self._unsealed = bytearray()
        self.size = 0
        self._at = 0
        self._read_last: tuple[int, bytes] = (-1, b"")

    def write(self, data: bytes | memoryview) -> int:  # type: ignore[override]
        self._unsealed += data
        self.size += len(data)
        while len(self._unsealed) >= SEGMENT_BYTES:
            self._keep(bytes(self._unsealed[:SEGMENT_BYTES]))
            del self._unsealed[:SEGMENT_BYTES]
        return len(data)

    def _keep(self, plain: bytes) -> None:
        number = self._file.tell() // (SEGMENT_BYTES + _TAG_BYTES)
        left = memoryview(self._cipher.encrypt(_nonce(number), plain, None))
        while left:
            left = left[self._file.write(left) :]

    def whole(self) -> "Spool":
        """Ends the writing; from now on the spool is read."""
        if self._unsealed:
            self._keep(bytes(self._unsealed))
            self._unsealed.clear()
        self._at = 0
        return self

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence])
        return self._at

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        wanted, filled = memoryview(buffer).cast("B"), 0
        while filled < len(wanted) and self._at < self.size:
            number, start = divmod(self._at, SEGMENT_BYTES)
            part = self._segment(number)[start : start + len(wanted) - filled]
            wanted[filled : filled + len(part)] = part
            filled, self._at = filled + len(part), self._at + len(part)
        return filled

    def _segment(self, number: int) -> bytes:
        if self._read_last[0] != number:
            self._file.seek(number * (SEGMENT_BYTES + _TAG_BYTES))
            sealed = self._file.read(SEGMENT_BYTES + _TAG_BYTES)
            self._read_last = number, self._cipher.decrypt(_nonce(number), sealed, None)
        return self._read_last[1]

    def close(self) -> None:
        self._file.close()
        super().close()


def _nonce(number: int) -> bytes:
    """A number is a safe nonce: each spool has a new key, and each segment is sealed once."""
    return number.to_bytes(12, "big")
