"""Connections go to the address that was judged, whatever happens to the name, and TLS still checks the name."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from millrace.model.errors import Unavailable
from millrace.outbound import addresses, http, pinning
from millrace.outbound.addresses import Judged, parse_target
from millrace.outbound.http import Http, Request, post

NAME = "store.example"
LOOPBACK = (ip_network("127.0.0.1/32"),)


def certificate(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "certificate.pem"
    path.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM) + secret)
    return path


class Handler(BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.headers["Host"])
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    do_POST = do_GET

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A TLS server on loopback whose certificate is made out to NAME."""
    path = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    monkeypatch.setattr(http, "ATTEMPTS", 1)
    pinning._tls.cache_clear()
    pinning.pool.cache_clear()
    Handler.asked = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join(10)
    pinning._tls.cache_clear()
    pinning.pool.cache_clear()


def to_loopback(monkeypatch: pytest.MonkeyPatch, *first: str) -> list[str]:
    """Any name is at 127.0.0.1, behind the addresses given first; the names that were looked up."""
    looked_up: list[str] = []

    def resolve(host: str) -> list[str]:
        looked_up.append(host)
        return [*first, "127.0.0.1"]

    monkeypatch.setattr(addresses, "resolve", resolve)
    return looked_up


def get(url: str) -> bytes:
    return Http(Judged(LOOPBACK)).send(lambda: Request("GET", url)).body


def sent(url: str) -> int:
    return asyncio.run(post(parse_target(url), {}, b"{}", LOOPBACK, 5)).status


def test_the_certificate_must_be_the_name_s_not_the_address_s(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    to_loopback(monkeypatch)
    assert get(f"https://{NAME}:{port}/x") == b"ok"
    assert sent(f"https://{NAME}.:{port}/x") == 200, "a trailing dot is no part of the name"
    assert Handler.asked == [f"{NAME}:{port}", f"{NAME}.:{port}"]
    with pytest.raises(OSError, match=r"(?i)certificate"):
        get(f"https://other.example:{port}/x")
    with pytest.raises(Unavailable, match=r"(?i)certificate"):
        sent(f"https://other.example:{port}/x")
    assert len(Handler.asked) == 2


def test_a_name_is_looked_up_once_per_connection_and_only_permitted_addresses_are_tried(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = to_loopback(monkeypatch, "10.0.0.1", "169.254.169.254")
    assert sent(f"https://{NAME}:{port}/x") == 200
    assert looked_up == [NAME]
    monkeypatch.setattr(addresses, "resolve", lambda _: ["10.0.0.1"])
    for ask in (get, sent):
        with pytest.raises(Unavailable, match="does not resolve to public addresses"):
            ask(f"https://inside.example:{port}/x")


def test_the_next_address_is_tried_if_one_takes_no_connection(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "resolve", lambda _: ["127.0.0.2", "127.0.0.1"])
    allowed = (ip_network("127.0.0.0/8"),)
    assert Http(Judged(allowed)).send(lambda: Request("GET", f"https://{NAME}:{port}/x")).body == b"ok"
