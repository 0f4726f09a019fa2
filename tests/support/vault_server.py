"""Vault's transit engine as far as keys go, on loopback: `with vault_server() as vault`. Requests are kept as they came.

After hashicorp/vault's builtin/logical/transit, with disable_upsert: named keys have versions, seal for real, and say what
Vault says where they do not open. Its rewrap knows nothing of associated data, as Vault's."""

import json
import os
import re
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

TOKEN = "hvs.tester"
_NONCE_BYTES = 12
_ROUTE = re.compile(r"/v1/transit/(keys|encrypt|decrypt|rewrap)/(\w(?:[\w.-]*\w)?)(/rotate|/config)?")


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any] | None


class Refusal(Exception):
    def __init__(self, status: int, *errors: str) -> None:
        super().__init__(status, errors)
        self.status = status
        self.errors = errors


@dataclass
class Key:
    versions: list[bytes] = field(default_factory=lambda: [os.urandom(32)])
    deletion_allowed: bool = False


@dataclass
class Vault:
    url: str = ""
    keys: dict[str, Key] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    sealed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, asked: Asked) -> dict[str, Any] | None:
        """The data of the answer."""
        with self.lock:
            self.asked.append(asked)
            if self.sealed:
                raise Refusal(503, "Vault is sealed")
            if asked.headers.get("x-vault-token") != TOKEN:
                raise Refusal(403, "permission denied")
            if not (route := _ROUTE.fullmatch(asked.path)):
                raise Refusal(404, f'no handler for route "{asked.path}". route entry not found.')
            verb, name, rest = route.groups()
            return self._act(asked.method, verb + (rest or ""), name, asked.body or {})

    def _act(self, method: str, verb: str, name: str, body: dict[str, Any]) -> dict[str, Any] | None:
        if (method, verb) == ("POST", "keys"):
            assert body["type"] == "aes256-gcm96"
            self.keys.setdefault(name, Key())
        if (key := self.keys.get(name)) is None:
            raise _missing(method, verb, name)
        context = b64decode(body.get("associated_data", ""))
        match method, verb:
            case "POST", "encrypt":
                return _sealed(key, b64decode(body["plaintext"]), context)
            case "POST", "decrypt":
                return {"plaintext": b64encode(_opened(key, body["ciphertext"], context)).decode()}
            case "POST", "rewrap":
                return _sealed(key, _opened(key, body["ciphertext"], b""), b"")
            case "DELETE", "keys":
                if not key.deletion_allowed:
                    raise Refusal(500, "1 error occurred: deletion is not allowed for this key")
                del self.keys[name]
                return None
            case "POST", "keys/config":
                key.deletion_allowed = body["deletion_allowed"]
            case "POST", "keys/rotate":
                key.versions.append(os.urandom(32))
        return _shown(name, key)


def _missing(method: str, verb: str, name: str) -> Refusal:
    match method, verb:
        case "GET", "keys":
            return Refusal(404)
        case "DELETE", "keys":
            return Refusal(500, "1 error occurred: could not delete key; not found")
        case _, "keys/config":
            return Refusal(400, f"no existing key named {name} could be found")
        case _, "keys/rotate":
            return Refusal(400, "key not found")
    return Refusal(400, "encryption key not found")


def _shown(name: str, key: Key) -> dict[str, Any]:
    return {
        "name": name,
        "type": "aes256-gcm96",
        "latest_version": len(key.versions),
        "deletion_allowed": key.deletion_allowed,
    }


def _sealed(key: Key, plaintext: bytes, context: bytes) -> dict[str, Any]:
    nonce = os.urandom(_NONCE_BYTES)
    sealed = nonce + AESGCM(key.versions[-1]).encrypt(nonce, plaintext, context)
    version = len(key.versions)
    return {"ciphertext": f"vault:v{version}:{b64encode(sealed).decode()}", "key_version": version}


def _opened(key: Key, ciphertext: str, context: bytes) -> bytes:
    if not (parts := re.fullmatch(r"vault:v(\d+):(.+)", ciphertext)):
        raise Refusal(400, "invalid ciphertext: no prefix")
    if int(parts[1]) > len(key.versions):
        raise Refusal(400, "invalid ciphertext: version is too new")
    sealed = b64decode(parts[2])
    try:
        secret = key.versions[int(parts[1]) - 1]
        return AESGCM(secret).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], context)
    except InvalidTag:
        raise Refusal(400, "cipher: message authentication failed") from None


@contextmanager
def vault_server() -> Iterator[Vault]:
    vault = Vault()

    class Handler(_Handler):
        of = vault

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        vault.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield vault
        finally:
            server.shutdown()
            thread.join(20)


class _Handler(BaseHTTPRequestHandler):
    of: Vault

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, self.path, headers, json.loads(body) if body else None)
        try:
            data = self.of.answer(asked)
            self._send(204, b"") if data is None else self._send(200, json.dumps({"data": data}).encode())
        except Refusal as refusal:
            self._send(refusal.status, json.dumps({"errors": refusal.errors}).encode())

    do_GET = do_DELETE = do_POST

    def log_message(self, format: str, *args: object) -> None:
        """Tests want quiet."""

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
