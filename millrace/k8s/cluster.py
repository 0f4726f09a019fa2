"""HTTP to one Kubernetes API server: objects in and out, and the one border where its refusals become ours."""

import json
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import httpx2

from millrace.k8s.access import Access
from millrace.k8s.errors import ClusterUnreachable, refusal_of
from millrace.k8s.names import MANAGER
from millrace.k8s.resources import Key, Kind
from millrace.model.errors import Invalid

Object = dict[str, Any]
PAGE = 500
TRIES = 5
LONGEST_PAUSE_SECONDS = 10.0
_TIMEOUT = httpx2.Timeout(30.0, connect=10.0)
_CREATED, _MISSING, _FIRST_ERROR = 201, 404, 400
# The server is busy or changes hands: the same request may succeed in a moment.
_PASSING = (429, 500, 502, 503, 504)


class KubernetesCluster:
    """Safe to share between threads."""

    def __init__(self, access: Access, *, dry_run: bool = False, pause: Callable[[float], None] = time.sleep) -> None:
        self._access = access
        self._pause = pause
        self._dry_run = {"dryRun": "All"} if dry_run else {}
        self._http = _http_client(access)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, key: Key) -> Object | None:
        return self._object("GET", key.path)

    def apply(self, manifest: Mapping[str, Any], *, force: bool = False) -> tuple[Object, bool]:
        """Server-side apply: the object as it is now, and whether it is new."""
        params = {"fieldManager": MANAGER, "force": str(force).lower(), **self._dry_run}
        headers = {"Content-Type": "application/apply-patch+yaml"}
        path = Key.of(manifest).path
        # JSON is YAML; the server wants the name alone.
        response = self._send("PATCH", path, params=params, headers=headers, content=json.dumps(manifest))
        return _accepted(response), response.status_code == _CREATED

    def delete(self, key: Key, uid: str) -> bool:
        """Deletes the object if it is still that one; what it owns follows. False: it was gone."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid},
        }
        return self._object("DELETE", key.path, params=self._dry_run, json=body) is not None

    def list(self, kind: Kind, selector: str) -> Iterator[Object]:
        """Of all namespaces, page by page."""
        params = {"labelSelector": selector, "limit": str(PAGE)}
        while True:
            page = self._object("GET", kind.folder(), params=params) or {}
            yield from page.get("items") or []
            goes_on = (page.get("metadata") or {}).get("continue")
            if not goes_on:
                return
            params["continue"] = goes_on

    def _object(self, method: str, path: str, **request: Any) -> Object | None:
        """None if there is no such thing."""
        response = self._send(method, path, **request)
        return None if response.status_code == _MISSING else _accepted(response)

    def _send(self, method: str, path: str, **request: Any) -> httpx2.Response:
        for attempt in range(TRIES):
            try:
                response = self._http.request(method, path, **_with_bearer(request, self._access.bearer()))
            except httpx2.TransportError as failed:
                raise ClusterUnreachable(self._access.server, str(failed) or type(failed).__name__) from failed
            if response.status_code not in _PASSING:
                return response
            if attempt + 1 < TRIES:
                self._pause(_pause_seconds(response, attempt))
        raise ClusterUnreachable(self._access.server, f"it answered {response.status_code} {TRIES} times")


def _http_client(access: Access) -> httpx2.Client:
    try:
        return httpx2.Client(
            base_url=access.server,
            verify=_trust(access) if access.server.startswith("https:") else False,
            auth=access.password,
            timeout=_TIMEOUT,
            headers={"Accept": "application/json", "User-Agent": MANAGER},
        )
    except httpx2.InvalidURL as wrong:
        raise Invalid(f"{access.server!r} is not an address: {wrong}.", remedy="Correct the kubeconfig.") from None


def _with_bearer(request: dict[str, Any], token: str | None) -> dict[str, Any]:
    if token is None:
        return request
    return {**request, "headers": {**request.get("headers", {}), "Authorization": f"Bearer {token}"}}


def _pause_seconds(response: httpx2.Response, attempt: int) -> float:
    asked = response.headers.get("Retry-After", "")
    return min(float(asked) if asked.isdigit() else 0.2 * 2**attempt, LONGEST_PAUSE_SECONDS)


def _accepted(response: httpx2.Response) -> Object:
    try:
        document = response.json()
    except ValueError:
        document = {"message": f"The cluster answered {response.status_code}: {response.text[:200]!r}"}
    document = document if isinstance(document, dict) else {}
    if response.status_code >= _FIRST_ERROR:
        raise refusal_of(response.status_code, document)
    return document


def _trust(access: Access) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=access.authority)
        if not access.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if access.certificate is not None and access.key is not None:
            _load_certificate(context, access.certificate, access.key)
    except (ssl.SSLError, ValueError) as wrong:
        raise Invalid(f"The credentials of {access.server} cannot be read: {wrong}.", remedy="Correct them.") from None
    return context


def _load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Python reads them from files alone."""
    with tempfile.TemporaryDirectory(prefix="millrace-") as folder:
        files = Path(folder, "certificate.pem"), Path(folder, "key.pem")
        for file, text in zip(files, (certificate, key), strict=True):
            file.touch(0o600)
            file.write_text(text)
        context.load_cert_chain(*files)
