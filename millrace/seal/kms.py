"""Tenant keys, wherever they are kept: each tenant has one, and it never leaves its keeper. Data keys in, wrapped out."""

from pathlib import Path
from typing import Any, Protocol

from millrace.model.errors import Invalid
from millrace.settings import KmsSettings


class Kms(Protocol):
    """Raises Unavailable where the keeper does not answer, KeyGone where the key is no more. `context` is bound to what is
    wrapped: it must be said again to unwrap."""

    def wrap(self, tenant: str, secret: bytes, context: str, *, is_first: bool = True) -> bytes:
        """By the newest version of the tenant's key, which is made if there is none. If this is not the first time, and the
        keeper cannot tell a key that is gone from one that is out of reach, it makes none."""
        ...

    def unwrap(self, tenant: str, wrapped: bytes, context: str) -> bytes: ...

    def rewrap(self, tenant: str, wrapped: bytes, context: str) -> bytes:
        """The same secret by the newest version of the key."""
        ...

    def rotate(self, tenant: str) -> None:
        """A new version of the key; what older ones wrapped can still be unwrapped."""
        ...

    def destroy(self, tenant: str) -> str:
        """Nothing that the key wrapped can be unwrapped any more. Says when that is certain."""
        ...

    def describe(self, tenant: str) -> dict[str, Any] | None:
        """What the keeper calls the key, and its newest version; None if the tenant has none."""
        ...


def open_kms(settings: KmsSettings, folder: Path) -> Kms:
    """`folder`: for keys on this machine, if the settings name no other."""
    # Each keeper brings a library that the others do not need.
    match settings.kind:
        case "local":
            from millrace.seal.kms_local import LocalKms  # noqa: PLC0415

            return LocalKms(settings.folder or folder)
        case "aws":
            from millrace.seal.kms_aws import AwsKms  # noqa: PLC0415

            return AwsKms(settings)
        case "vault":
            from millrace.seal.kms_vault import VaultKms  # noqa: PLC0415

            return VaultKms(settings)
    raise Invalid(f"{settings.kind!r} is no keeper of keys.", remedy="Choose local, aws or vault.")
