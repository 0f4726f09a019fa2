"""Bytes sealed and opened again: AES-SIV, by a key of their own import, bound to where they belong.

The same bytes at the same place become the same sealed bytes: what is sent or staged again after a crash is recognised. What
was moved, cut or changed does not open."""

import hashlib
import hmac

import tink
from tink import daead, proto_keyset_format, secret_key_access
from tink.proto import aes_siv_pb2, tink_pb2

from millrace.model.errors import Corrupt

_TYPE = "type.googleapis.com/google.crypto.tink.AesSivKey"

daead.register()


class Seal:
    """Of one import (or of what is kept of a table) in one table of one tenant; `key` names the data key it comes from."""

    def __init__(self, secret: bytes, key: str, tenant: str, table: str, owner: str) -> None:
        self.key = key
        self.owner = owner
        self._place = f"{tenant}/{table}/{owner}"
        own = hmac.digest(secret, self._place.encode(), "sha512")
        self._cipher = _cipher(own)
        self._digest_key = hmac.digest(own, b"names", "sha256")

    def close(self, plain: bytes | memoryview, part: str) -> bytes:
        """Sealed as this part of it."""
        return bytes(self._cipher.encrypt_deterministically(bytes(plain), self._bound(part)))

    def open(self, sealed: bytes | memoryview, part: str) -> bytes:
        try:
            return bytes(self._cipher.decrypt_deterministically(bytes(sealed), self._bound(part)))
        except tink.TinkError as error:
            raise Corrupt(f"Part {part} of {self._place} is not what was sealed there.") from error

    def digest(self, plain: bytes | memoryview) -> str:
        """Names the bytes without telling anybody else what they are."""
        return hashlib.blake2b(plain, key=self._digest_key, digest_size=12).hexdigest()

    def _bound(self, part: str) -> bytes:
        return f"{self._place}/{part}".encode()


def _cipher(key: bytes) -> daead.DeterministicAead:
    value = aes_siv_pb2.AesSivKey(version=0, key_value=key).SerializeToString()
    data = tink_pb2.KeyData(type_url=_TYPE, value=value, key_material_type=tink_pb2.KeyData.SYMMETRIC)
    entry = tink_pb2.Keyset.Key(key_id=1, status=tink_pb2.ENABLED, output_prefix_type=tink_pb2.RAW, key_data=data)
    keyset = tink_pb2.Keyset(primary_key_id=1, key=[entry]).SerializeToString()
    return proto_keyset_format.parse(keyset, secret_key_access.TOKEN).primitive(daead.DeterministicAead)
