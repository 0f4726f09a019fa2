"""Secrets of Kubernetes, read from the cluster's API with the account of the pod that we are in."""

import json
import os
from base64 import b64decode
from http import HTTPStatus
from pathlib import Path
from typing import Any

from millrace.model.errors import Missing, Unavailable
from millrace.outbound.addresses import resolve
from millrace.outbound.http import Http, HttpFailed, Request

ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"


def read_kube_secret(namespace: str, name: str, key: str) -> str:
    """The cluster's own rules say whether we may: a RoleBinding in the namespace."""
    where = f"{name}/{key} in the namespace {namespace}"
    document = _secret(namespace, name)
    encoded = (document.get("data") or {}).get(key)
    if not isinstance(encoded, str):
        raise Missing(
            f"There is no secret {where}.", remedy="Create the Secret there, with that key.", code="no_secret"
        )
    return b64decode(encoded).decode().strip()


def _secret(namespace: str, name: str) -> dict[str, Any]:
    host, token_file = os.environ.get(_HOST), ACCOUNT_FOLDER / "token"
    if host is None or not token_file.is_file():
        raise Missing(
            "This is no pod with an account, so it cannot read secrets of Kubernetes.",
            remedy="Give the platform's pods their account (deploy/components/secrets), or use another kind of reference.",
            code="no_secret",
        )
    server = f"https://{f'[{host}]' if ':' in host else host}:{os.environ.get(_PORT, '443')}"
    # The token changes while the pod runs.
    headers = {"Authorization": f"Bearer {token_file.read_text().strip()}", "Accept": "application/json"}
    request = Request("GET", f"{server}/api/v1/namespaces/{namespace}/secrets/{name}", headers)
    try:
        answer = Http(resolve, ACCOUNT_FOLDER / "ca.crt").send(lambda: request)
    except FileNotFoundError:
        return {}
    except HttpFailed as failed:
        if failed.errno in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise Missing(
                f"The platform's account may not read Secrets in the namespace {namespace}.",
                remedy="Bind the ClusterRole millrace-secrets to it there.",
                code="no_secret",
            ) from None
        raise Unavailable(f"The cluster does not give the secret {name}: {failed}.") from failed
    except OSError as failed:
        raise Unavailable(f"The cluster does not answer: {failed}.") from failed
    document = json.loads(answer.body)
    return document if isinstance(document, dict) else {}
