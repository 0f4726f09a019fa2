"""Bytes sealed and opened again: AES-GCM, by a key of their own import, bound to where they belong.

The nonce follows from the bytes and their place, by a second key. So the same bytes at the same place become the same sealed
bytes, and what is sent or staged again after a crash is recognised; and no nonce ever serves two texts. What was moved, cut
or changed does not open."""

import hashlib
import hmac

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from millrace.model.errors import Corrupt

KEY_BYTES, NONCE_BYTES, TAG_BYTES = 32, 12, 16
# What sealing adds to the bytes themselves.
OVERHEAD_BYTES = NONCE_BYTES + TAG_BYTES


class Seal:
    """Seals the bytes of one import in one table of one tenant. `key` is the name of the data key that it is derived from."""

    def __init__(self, secret: bytes, key: str, tenant: str, table: str, owner: str) -> None:
        self.key = key
        self.owner = owner
        self._place = f"{tenant}/{table}/{owner}"
        own = hmac.digest(secret, self._place.encode(), "sha512")
        self._cipher = AESGCM(own[:KEY_BYTES])
        self._nonce_key = own[KEY_BYTES:]
        self._name_key = hmac.digest(own, b"names", "sha256")

    def close(self, plain: bytes | memoryview, part: str) -> bytes:
        """`part` says which bytes of the import these are; `open` must be given the same."""
        place = self._bound(part)
        nonce = hmac.new(self._nonce_key, place + b"\0", hashlib.sha256)
        nonce.update(plain)
        chosen = nonce.digest()[:NONCE_BYTES]
        # Arrow's buffers have signed bytes.
        return chosen + self._cipher.encrypt(chosen, memoryview(plain).cast("B"), place)

    def open(self, sealed: bytes | memoryview, part: str) -> bytes:
        try:
            return self._cipher.decrypt(bytes(sealed[:NONCE_BYTES]), sealed[NONCE_BYTES:], self._bound(part))
        except (InvalidTag, ValueError) as error:
            raise Corrupt(f"Part {part} of {self._place} is not what was sealed there.") from error

    def digest(self, plain: bytes | memoryview) -> str:
        """A name that follows from the bytes and reveals nothing about them."""
        return hashlib.blake2b(plain, key=self._name_key, digest_size=12).hexdigest()

    def _bound(self, part: str) -> bytes:
        return f"{self._place}/{part}".encode()
