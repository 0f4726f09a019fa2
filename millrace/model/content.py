"""What an upload brings, as far as it is known: two uploads with one idempotency key must bring the same."""

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from millrace.model.errors import Clash, Invalid

OTHER_CONTENT = "other_content"
# A repeated request that brings no bytes: only a digest says whether its file is the same.
DIGEST_WANTED = "digest_wanted"
# The option of an import that keeps the length and the digest of its file.
CONTENT = "content"

_SHA_256 = re.compile(r"(?:^|,)\s*sha-256=:([A-Za-z0-9+/=]*):", re.ASCII)
_SHA_256_BYTES = 32


@dataclass(frozen=True, slots=True)
class FileMark:
    """None: not known. The digest is the SHA-256 of the file as it was sent, in hexadecimal."""

    file_name: str | None = None
    length: int | None = None
    digest: str | None = None

    @staticmethod
    def of(options: Mapping[str, Any]) -> "FileMark":
        """From the options of an import. Imports of earlier releases have a name at most."""
        kept = options.get(CONTENT) or {}
        return FileMark(options.get("file_name"), kept.get("length"), kept.get("digest"))

    def kept(self) -> dict[str, Any]:
        """What is kept besides the name."""
        return {name: value for name, value in asdict(self).items() if name != "file_name" and value is not None}

    def difference(self, other: "FileMark") -> str | None:
        """In words, where both are known to differ."""
        if None not in (self.file_name, other.file_name) and self.file_name != other.file_name:
            return f"the file was {self.file_name!r:.120} and is now {other.file_name!r:.120}"
        if self.length is not None and other.length is not None and self.length != other.length:
            return f"the file had {self.length:,} bytes and has now {other.length:,}"
        if None not in (self.digest, other.digest) and self.digest != other.digest:
            return f"the content differs (SHA-256 {str(self.digest)[:12]}… then, {str(other.digest)[:12]}… now)"
        return None


def other_content(import_id: str, difference: str) -> Clash:
    return Clash(
        f"The idempotency key belongs to import {import_id}, which brought something else: {difference}.",
        remedy="Use a new key for other content. The same file with the same key is the same import.",
        code=OTHER_CONTENT,
    )


def digest_header(digest: str) -> str:
    """As HTTP says it (RFC 9530)."""
    return f"sha-256=:{b64encode(bytes.fromhex(digest)).decode()}:"


def digest_of_header(said: str | None) -> str | None:
    """The SHA-256 that a header names; None if it names none. Other algorithms are passed over."""
    found = _SHA_256.search(said or "")
    if found is None:
        return None
    try:
        digest = b64decode(found[1], validate=True)
    except ValueError:
        digest = b""
    if len(digest) != _SHA_256_BYTES:
        raise Invalid(
            "The header Repr-Digest has no valid SHA-256.",
            remedy="Send sha-256=:DIGEST:, where DIGEST is the 32 bytes in base64.",
            code="bad_digest",
        )
    return digest.hex()
