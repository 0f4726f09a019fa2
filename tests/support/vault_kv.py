"""Vault's KV engine of version 2 and its logins, on loopback, as its HTTP API documents them: tokens, AppRole, Kubernetes.

A token has a policy: the paths of the engine that it may read. Every request is kept."""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

ROLE_ID, SECRET_ID = "db02de05-fa39-4855-059b-67221c5c2f63", "6a174c20-f6de-a53c-74d2-6018fcceff64"
KUBE_ROLE, JWT = "millrace", "eyJhbGciOi.eyJpc3M.c2ln"
ROOT_TOKEN = "hvs.root"


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class VaultKv:
    """`secrets`: path → fields, None where the newest version is deleted. `readable`: how paths begin that may be read."""

    url: str = ""
    mount: str = "secret"
    secrets: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    readable: tuple[str, ...] = ("",)
    tokens: set[str] = field(default_factory=lambda: {ROOT_TOKEN})
    lease_seconds: int = 3600
    namespace: str | None = None
    asked: list[Asked] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def logins(self) -> int:
        return sum(one.method == "POST" for one in self.asked)

    def answer(self, asked: Asked) -> tuple[int, dict[str, Any]]:
        with self.lock:
            self.asked.append(asked)
            if asked.headers.get("x-vault-request") != "true":
                return 412, {"errors": ["required request header 'X-Vault-Request' is missing"]}
            if asked.headers.get("x-vault-namespace") != self.namespace:
                return 403, {"errors": ["permission denied"]}
            match asked.method, asked.path:
                case "POST", "/v1/auth/approle/login":
                    given = asked.body.get("role_id"), asked.body.get("secret_id")
                    return self._login(given == (ROLE_ID, SECRET_ID), "invalid role or secret ID", 400)
                case "POST", "/v1/auth/kubernetes/login":
                    given = asked.body.get("role"), asked.body.get("jwt")
                    return self._login(given == (KUBE_ROLE, JWT), "permission denied", 403)
            return self._read(asked)

    def _login(self, is_right: bool, refusal: str, status: int) -> tuple[int, dict[str, Any]]:
        if not is_right:
            return status, {"errors": [refusal]}
        token = f"hvs.{next(self.numbers)}"
        self.tokens.add(token)
        auth = {"client_token": token, "lease_duration": self.lease_seconds, "renewable": True, "policies": ["default"]}
        return 200, {"data": None, "auth": auth}

    def _read(self, asked: Asked) -> tuple[int, dict[str, Any]]:
        path = asked.path.removeprefix(f"/v1/{self.mount}/data/")
        is_allowed = path != asked.path and any(path.startswith(begin) for begin in self.readable)
        if asked.method != "GET" or asked.headers.get("x-vault-token") not in self.tokens or not is_allowed:
            return 403, {"errors": ["1 error occurred:\n\t* permission denied\n\n"]}
        if path not in self.secrets:
            return 404, {"errors": []}
        fields = self.secrets[path]
        metadata = {"version": 1, "destroyed": False, "deletion_time": "" if fields else "2026-01-01T00:00:00Z"}
        return 200 if fields else 404, {"data": {"data": fields, "metadata": metadata}}


@contextmanager
def vault_kv(tls: ssl.SSLContext | None = None) -> Iterator[VaultKv]:
    vault = VaultKv()

    class Handler(_Handler):
        of = vault

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        vault.url = f"{'http' if tls is None else 'https'}://localhost:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield vault
        finally:
            server.shutdown()
            thread.join(20)


class _Handler(BaseHTTPRequestHandler):
    of: VaultKv

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        status, answer = self.of.answer(Asked(self.command, self.path, headers, json.loads(body) if body else {}))
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST

    def log_message(self, format: str, *args: object) -> None:
        """Tests want quiet."""
