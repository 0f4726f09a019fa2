"""Keepers of tenant keys: data keys in, wrapped data keys out. A tenant has one key, which never leaves its keeper."""

from pathlib import Path
from typing import Any, Protocol

from millrace.model.errors import Invalid
from millrace.settings import KmsSettings


class Kms(Protocol):
    """Raises Unavailable if the keeper does not answer, KeyGone if the key no longer exists. `context` is bound to what is
    wrapped: unwrapping needs the same one."""

    def wrap(self, tenant: str, secret: bytes, context: str, *, is_first: bool = True) -> bytes:
        """By the newest version of the tenant's key. A missing key is made, unless this is not the first time and the keeper
        cannot tell whether the key was destroyed or is out of reach."""

    def unwrap(self, tenant: str, wrapped: bytes, context: str) -> bytes: ...

    def rewrap(self, tenant: str, wrapped: bytes, context: str) -> bytes:
        """The same secret by the newest version of the key."""

    def rotate(self, tenant: str) -> None:
        """A new version of the key; what older ones wrapped can still be unwrapped."""

    def destroy(self, tenant: str) -> str:
        """Nothing that the key wrapped can be unwrapped any more. Returns when that is certain."""

    def describe(self, tenant: str) -> dict[str, Any] | None:
        """What the keeper calls the key, and its newest version; None if the tenant has none."""


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
