"""The SHA-256 of an upload, taken while its bytes arrive."""

from dataclasses import dataclass
from hashlib import sha256

from millrace.model.content import FileMark, other_content


@dataclass(frozen=True, slots=True)
class KnownStart:
    """An earlier request brought at least so many bytes, with this digest."""

    length: int
    digest: str


class RunningDigest:
    """Unknown for an upload that goes on behind its start: the state of a hash does not survive a restart of the server.

    With a `known` start, bytes that begin otherwise are refused: they would be mixed with those of another file."""

    def __init__(self, import_id: str, offset: int = 0, known: KnownStart | None = None) -> None:
        self._import_id = import_id
        self._hash = sha256() if offset == 0 else None
        self._known = known if offset == 0 else None
        self.length = offset

    def update(self, piece: bytes) -> None:
        self.length += len(piece)
        if self._hash is None:
            return
        known = self._known
        if known is not None and self.length >= known.length:
            self._known = None
            rest = self.length - known.length
            self._hash.update(memoryview(piece)[: len(piece) - rest])
            self._compare(known)
            piece = piece[len(piece) - rest :]
        self._hash.update(piece)

    def _compare(self, known: KnownStart) -> None:
        if self.hex != known.digest:
            raise other_content(self._import_id, f"the first {known.length:,} bytes differ")

    def finish(self) -> None:
        """Refused if the file is shorter than what an earlier request brought."""
        if self._known is not None:
            raise other_content(
                self._import_id, f"{self._known.length:,} bytes had arrived, and the file has {self.length:,}"
            )

    @property
    def hex(self) -> str | None:
        return None if self._hash is None else self._hash.hexdigest()

    @property
    def start(self) -> KnownStart | None:
        """What is known so far; nothing about an upload of which nothing is here."""
        digest = self.hex
        return None if digest is None or self.length == 0 else KnownStart(self.length, digest)

    @property
    def longest_start(self) -> KnownStart | None:
        """What an earlier request brought, until as much is here again: its chunks may be in the log."""
        return self._known or self.start

    @property
    def mark(self) -> FileMark:
        return FileMark(length=self.length, digest=self.hex)
