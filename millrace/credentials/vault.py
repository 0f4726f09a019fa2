"""Secrets in HashiCorp Vault: logs in by a token, an AppRole or a Kubernetes account, and reads a KV engine of version 2."""

import json
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from millrace.model.errors import Invalid, Missing, Unavailable
from millrace.outbound.addresses import resolve
from millrace.outbound.http import Http, HttpFailed, Request
from millrace.settings import VaultSettings

# A token is used for this part of its life, so that it does not end under way.
USED_PART = 2 / 3
ReadOperators = Callable[[str], str]


class VaultSession:
    """One for all threads of a process. Holds a token of Vault in memory; no secret that was read."""

    def __init__(self, settings: VaultSettings) -> None:
        self._settings = settings
        self._http = Http(resolve, settings.ca_file)
        self._token, self._until = "", 0.0
        self._lock = threading.Lock()

    def read(self, path: str, field: str, operators: ReadOperators) -> str:
        """A token may have been revoked before its end: then it takes a second login."""
        url = f"{self._settings.mount}/data/{path}"
        try:
            found = self._ask("GET", url, self._logged_in(operators))
        except PermissionError:
            self._until = 0.0
            try:
                found = self._ask("GET", url, self._logged_in(operators))
            except PermissionError as refused:
                raise _not_allowed(path, str(refused)) from None
        # The latest version of a secret may be deleted: then there is an answer without data.
        value = ((found.get("data") or {}).get("data") or {}).get(field)
        if not isinstance(value, str):
            what = "is no text" if value is not None else "is not there"
            raise Missing(
                f"The field {field!r:.60} of {path} {what} in Vault.", remedy="Put it there.", code="no_secret"
            )
        return value

    def _logged_in(self, operators: ReadOperators) -> str:
        if self._settings.login == "token":
            return operators(self._settings.token or "")
        with self._lock:
            if time.monotonic() >= self._until:
                self._token, seconds = self._log_in(operators)
                # Without an end: until Vault refuses it.
                self._until = time.monotonic() + (seconds * USED_PART if seconds else float("inf"))
            return self._token

    def _log_in(self, operators: ReadOperators) -> tuple[str, float]:
        settings = self._settings
        body = {"role_id": settings.role_id or ""}
        if settings.login == "approle":
            body["secret_id"] = operators(settings.secret_id or "")
        else:
            body = {"role": settings.role or "", "jwt": self._account_token()}
        path = f"auth/{settings.login_mount or settings.login}/login"
        try:
            auth = self._ask("POST", path, None, body).get("auth") or {}
            return str(auth["client_token"]), float(auth.get("lease_duration") or 0)
        except (KeyError, PermissionError) as refused:
            raise Unavailable(
                f"Vault lets nobody in by {settings.login}: {refused}.",
                remedy="Have the operator correct MILLRACE_SECRETS__VAULT__….",
            ) from None

    def _account_token(self) -> str:
        try:
            return self._settings.jwt_file.read_text().strip()
        except OSError as failed:
            remedy = "Mount the account's token, or set MILLRACE_SECRETS__VAULT__JWT_FILE."
            raise Invalid(f"{self._settings.jwt_file} cannot be read: {failed}.", remedy=remedy) from None

    def _ask(self, method: str, path: str, token: str | None, body: dict[str, str] | None = None) -> dict[str, Any]:
        headers = {"X-Vault-Request": "true", "Content-Type": "application/json"}
        if token is not None:
            headers["X-Vault-Token"] = token
        if self._settings.namespace:
            headers["X-Vault-Namespace"] = self._settings.namespace
        content = None if body is None else json.dumps(body).encode()
        request = Request(method, f"{self._settings.address}/v1/{path}", headers, content)
        try:
            answer = json.loads(self._http.send(lambda: request).body)
        except FileNotFoundError:
            return {}
        except HttpFailed as failed:
            # What was wrong with a login is not repeated: a server's words may hold what we sent.
            if failed.errno == HTTPStatus.FORBIDDEN or (token is None and failed.errno == HTTPStatus.BAD_REQUEST):
                raise PermissionError(f"it answers {failed.errno}") from None
            raise Unavailable(f"Vault does not answer as it should: {method} {path} gives {failed.errno}.") from None
        except (OSError, ValueError) as failed:
            raise Unavailable(f"Vault does not answer: {type(failed).__name__} {failed}.") from None
        return answer if isinstance(answer, dict) else {}


def _not_allowed(path: str, said: str) -> Invalid:
    return Invalid(
        f"Vault does not let the platform read {path}: {said}.",
        remedy="Have the operator widen the policy of its login.",
        code="no_secret",
    )


@lru_cache(maxsize=4)
def session_of(settings: VaultSettings) -> VaultSession:
    return VaultSession(settings)
