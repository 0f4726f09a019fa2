"""Tenant keys in HashiCorp Vault's transit engine: one named key per tenant, whose versions Vault keeps."""

from base64 import b64decode, b64encode
from http import HTTPStatus
from typing import Any

import httpx2

from millrace.model.errors import Invalid, KeyGone, Unavailable
from millrace.model.names import checked_name
from millrace.settings import KmsSettings

CONNECT_SECONDS, ANSWER_SECONDS = 3.0, 5.0
_KEY_TYPE = "aes256-gcm96"
# Vault's messages (400) about keys and versions that no longer exist or did not wrap this. Any other error may pass.
_GONE = (
    "key not found",
    "no existing key named",
    "message authentication failed",
    "invalid ciphertext",
    "version is disallowed by policy",
    "no such key version",
)


class VaultKms:
    def __init__(self, settings: KmsSettings) -> None:
        if not settings.endpoint:
            raise Invalid("Nobody said where Vault is.", remedy="Set MILLRACE_KMS__ENDPOINT, as https://vault:8200.")
        if settings.token is None:
            raise Invalid("There is no token for Vault.", remedy="Set MILLRACE_KMS__TOKEN.")
        headers = {"X-Vault-Token": settings.token.get_secret_value()}
        if settings.namespace:
            headers["X-Vault-Namespace"] = settings.namespace
        self._prefix = settings.prefix
        self._mount = settings.mount.strip("/")
        try:
            self._http = httpx2.Client(
                base_url=f"{settings.endpoint.rstrip('/')}/v1/{self._mount}/",
                headers=headers,
                timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            )
        except httpx2.InvalidURL as error:
            remedy = "Correct MILLRACE_KMS__ENDPOINT."
            raise Invalid(f"{settings.endpoint!r} is not an address: {error}.", remedy=remedy) from None

    def wrap(self, tenant: str, secret: bytes, context: str, *, is_first: bool = True) -> bytes:
        self._make(tenant)
        return self._encrypt(tenant, secret, context)

    def unwrap(self, tenant: str, wrapped: bytes, context: str) -> bytes:
        body = {"ciphertext": wrapped.decode(errors="replace"), "associated_data": _base64(context.encode())}
        return b64decode(self._ask("POST", f"decrypt/{self._name(tenant)}", body)["plaintext"])

    def rewrap(self, tenant: str, wrapped: bytes, context: str) -> bytes:
        # Vault's own rewrap takes no associated data (hashicorp/vault#31791).
        return self._encrypt(tenant, self.unwrap(tenant, wrapped, context), context)

    def rotate(self, tenant: str) -> None:
        try:
            self._ask("POST", f"keys/{self._name(tenant)}/rotate")
        except KeyGone:
            self._make(tenant)

    def destroy(self, tenant: str) -> str:
        path = f"keys/{self._name(tenant)}"
        try:
            self._ask("POST", f"{path}/config", {"deletion_allowed": True})
        except KeyGone:
            return "now"
        self._ask("DELETE", path)
        return "now"

    def describe(self, tenant: str) -> dict[str, Any] | None:
        name = self._name(tenant)
        try:
            key = self._ask("GET", f"keys/{name}")
        except KeyGone:
            return None
        return {"keeper": "vault", "name": f"{self._mount}/{name}", "version": key["latest_version"]}

    def _make(self, tenant: str) -> None:
        """Leaves an existing key as it is."""
        self._ask("POST", f"keys/{self._name(tenant)}", {"type": _KEY_TYPE})

    def _encrypt(self, tenant: str, secret: bytes, context: str) -> bytes:
        body = {"plaintext": _base64(secret), "associated_data": _base64(context.encode())}
        return str(self._ask("POST", f"encrypt/{self._name(tenant)}", body)["ciphertext"]).encode()

    def _name(self, tenant: str) -> str:
        name = f"{self._prefix}{checked_name('tenant', tenant)}"
        # Vault's names may not end with a hyphen; no tenant's name has a dot.
        return f"{name}._" if name.endswith("-") else name

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            response = self._http.request(method, path, json=body)
        except httpx2.HTTPError as failed:
            raise Unavailable(
                f"Vault does not answer: {type(failed).__name__} {failed}".strip(),
                remedy="See that it runs at MILLRACE_KMS__ENDPOINT, and try again.",
            ) from failed
        answer = _json(response)
        if response.is_success:
            return answer.get("data") or {}
        said = "; ".join(str(error) for error in answer.get("errors") or ())
        status = response.status_code
        # A 404 of Vault without a message means that the key is missing; with a message, that the engine or the namespace is.
        # Any other 404 comes from a proxy before Vault.
        if (status == HTTPStatus.NOT_FOUND and answer.get("errors") == []) or (
            status == HTTPStatus.BAD_REQUEST and any(words in said for words in _GONE)
        ):
            raise KeyGone(f"Vault does not {method} {path}: {said or 'there is no such key'}.")
        raise Unavailable(f"Vault answers {status} to {method} {path}: {said}.", remedy=self._remedy(status))

    def _remedy(self, status: int) -> str:
        match status:
            case HTTPStatus.FORBIDDEN:
                return f"MILLRACE_KMS__TOKEN may not do that: renew it, or widen its policy on {self._mount}/."
            case HTTPStatus.NOT_FOUND:
                return f"Mount a transit engine at {self._mount}, or correct MILLRACE_KMS__MOUNT and __NAMESPACE."
            case HTTPStatus.SERVICE_UNAVAILABLE:
                return "Unseal Vault."
        return "Try again later."


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


def _json(response: httpx2.Response) -> dict[str, Any]:
    """Deletions have no body, and a proxy before Vault may answer anything."""
    try:
        answer = response.json()
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
