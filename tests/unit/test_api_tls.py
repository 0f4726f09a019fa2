"""The API by TLS: a certificate that changes while it runs, clients that trust it, and proxies whose word counts."""

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from cryptography import x509

from millrace.api.serving import LiveCertificate, serving_options
from millrace.client import Millrace, Unreachable
from millrace.model.errors import Invalid
from millrace.model.ops.tenants import DefineTenant
from millrace.settings import ApiSettings
from tests.support.tls import Authority, make_authority
from tests.support.waiting import wait_until
from tests.support.whole_app import TOKEN, served_app


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path / "ca")


@pytest.fixture
def pair(tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Where the server finds its certificate and its key."""
    files = tmp_path / "server.crt", tmp_path / "server.key"
    put(authority.issue("localhost"), files)
    monkeypatch.setenv("MILLRACE_API__TLS_CERT", str(files[0]))
    monkeypatch.setenv("MILLRACE_API__TLS_KEY", str(files[1]))
    return files


def put(issued: tuple[Path, Path], files: tuple[Path, Path]) -> None:
    for source, target in zip(issued, files, strict=True):
        shutil.copy(source, f"{target}.new")
        os.replace(f"{target}.new", target)


def shown_name(url: str) -> str:
    """The name in the certificate that the server shows now."""
    at = urlsplit(url)
    context = ssl._create_unverified_context()
    with socket.create_connection((at.hostname, at.port), 5) as plain, context.wrap_socket(plain) as secure:
        assert secure.version() in ("TLSv1.2", "TLSv1.3")
        found = x509.load_der_x509_certificate(secure.getpeercert(binary_form=True) or b"")
    return found.subject.rfc4514_string()


def cli(home: Path, *words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "millrace.cli.main", *words],
        env={"MILLRACE_HOME": str(home), "HOME": str(home), "PATH": "", "COLUMNS": "200", **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_clients_trust_the_authority_they_are_given_and_no_other(
    tmp_path: Path, authority: Authority, pair: tuple[Path, Path]
) -> None:
    ca_file = tmp_path / "ca.pem"
    ca_file.write_text(authority.certificate)
    stranger = make_authority(tmp_path / "other")
    (tmp_path / "other.pem").write_text(stranger.certificate)
    with served_app(tmp_path / "home") as server:
        server.apply(DefineTenant("acme", agreement={}))
        url = server.url.replace("127.0.0.1", "localhost")
        with Millrace(url, TOKEN, ca_file=ca_file) as platform:
            assert [one["name"] for one in platform.tenants.list()] == ["acme"]
        for distrusting in ({}, {"ca_file": tmp_path / "other.pem"}):
            with Millrace(url, TOKEN, **distrusting) as platform, pytest.raises(Unreachable, match="MILLRACE_CA_FILE"):
                platform.tenants.list()
        with Millrace(server.url, TOKEN, ca_file=ca_file) as platform, pytest.raises(Unreachable):
            platform.tenants.list()
        elsewhere = {"MILLRACE_URL": url, "MILLRACE_TOKEN": TOKEN}
        assert "acme" in cli(tmp_path, "tenant", "list", **elsewhere, MILLRACE_CA_FILE=str(ca_file)).stdout
        refused = cli(tmp_path, "tenant", "list", **elsewhere)
        assert refused.returncode != 0
        assert "MILLRACE_CA_FILE" in refused.stderr
        with pytest.raises(httpx2.HTTPError):
            httpx2.get(url.replace("https", "http"), timeout=5)


def test_a_renewed_certificate_is_used_without_a_restart(
    tmp_path: Path, authority: Authority, pair: tuple[Path, Path]
) -> None:
    home = tmp_path / "home"
    with served_app(home) as server:
        assert shown_name(server.url) == "CN=localhost"
        # A certificate without its key is half of a pair: the one before stays.
        shutil.copy(authority.issue("half")[0], pair[0])
        put(authority.issue("renewed"), pair)
        wait_until(lambda: shown_name(server.url) == "CN=renewed", 20, "the new certificate")
        with Millrace.from_home(home, {}) as another:
            assert another.tenants.list() == []
        assert cli(home, "tenant", "list").returncode == 0
        pair[0].write_text("no certificate")
        assert shown_name(server.url) == "CN=renewed"


def test_a_pair_that_changes_while_it_is_loaded_leaves_the_server_with_a_whole_one(
    tmp_path: Path, authority: Authority, pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    load, third = ssl.SSLContext.load_cert_chain, authority.issue("third")

    def load_and_replace(context: ssl.SSLContext, *files: Path) -> None:
        load(context, *files)
        # The next renewal writes its first file right now.
        shutil.copy(third[0], pair[0])

    live = LiveCertificate(*pair)
    put(authority.issue("second"), pair)
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load_and_replace)
    live.renew()
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load)
    assert shown_by(live.context) == "CN=second"
    live.renew()
    assert shown_by(live.context) == "CN=second"
    put(third, pair)
    live.renew()
    assert shown_by(live.context) == "CN=third"


def shown_by(context: ssl.SSLContext) -> str:
    """The name in the certificate that a handshake with this context shows."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(to_server, to_client, server_side=True)
    client = ssl._create_unverified_context().wrap_bio(to_client, to_server)
    for side in (client, server, client):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return x509.load_der_x509_certificate(client.getpeercert(binary_form=True) or b"").subject.rfc4514_string()


def test_a_client_that_stays_learns_of_the_new_certificate(
    tmp_path: Path, authority: Authority, pair: tuple[Path, Path]
) -> None:
    with served_app(tmp_path / "home") as server, Millrace.from_home(tmp_path / "home", {}) as platform:
        assert platform.tenants.list() == []
        put(make_authority(tmp_path / "ca2").issue("renewed"), pair)
        wait_until(lambda: shown_name(server.url) == "CN=renewed", 20, "the new certificate")
        at, trusted = urlsplit(server.url), platform.endpoint.tls()
        assert trusted is not None
        with socket.create_connection((at.hostname, at.port), 5) as plain, trusted.wrap_socket(plain) as secure:
            assert secure.getpeercert() is not None


def test_the_home_s_clients_accept_its_certificate_and_not_what_its_authority_issues(
    tmp_path: Path, authority: Authority, pair: tuple[Path, Path]
) -> None:
    """The file may hold the authority's certificate behind the server's own."""
    home = tmp_path / "home"
    pair[0].write_text(pair[0].read_text() + authority.certificate)
    with served_app(home):
        document = json.loads((home / "client.json").read_text())
        with Millrace.from_home(home, {}) as platform:
            assert platform.tenants.list() == []
        pretended = tmp_path / "pretended.crt"
        pretended.write_text(authority.issue("pretender")[0].read_text() + authority.certificate)
        (home / "client.json").write_text(json.dumps({**document, "certificate": str(pretended)}))
        with Millrace.from_home(home, {}) as platform, pytest.raises(Unreachable):
            platform.tenants.list()


def test_a_pair_that_cannot_be_used_is_refused_in_words(tmp_path: Path, authority: Authority) -> None:
    certificate, key = authority.issue("localhost")
    for wrong in ((certificate, tmp_path / "none"), (key, certificate)):
        with pytest.raises(Invalid, match="--tls-cert"):
            serving_options(ApiSettings(tls_cert=wrong[0], tls_key=wrong[1]))
    with pytest.raises(ValueError, match="belong together"):
        ApiSettings(tls_cert=certificate)


def forwarded(url: str, address: str) -> str:
    """Whom the audit log takes for the one who asked."""
    headers = {"Authorization": "Bearer mr_wrong", "X-Forwarded-For": address}
    assert httpx2.get(f"{url}/v1/tenants", headers=headers).status_code == 401
    mine = {"Authorization": f"Bearer {TOKEN}"}
    return str(httpx2.get(f"{url}/v1/audit", headers=mine).json()["items"][-1]["from"])


def test_only_trusted_proxies_say_who_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served_app(tmp_path / "nobody") as server:
        assert forwarded(server.url, "203.0.113.9") == "127.0.0.1"
    monkeypatch.setenv("MILLRACE_API__TRUSTED_PROXIES", '["10.0.0.0/8"]')
    with served_app(tmp_path / "others") as server:
        assert forwarded(server.url, "203.0.113.9") == "127.0.0.1"
    monkeypatch.setenv("MILLRACE_API__TRUSTED_PROXIES", '["127.0.0.0/8", "10.0.0.0/8"]')
    with served_app(tmp_path / "trusted") as server:
        assert forwarded(server.url, "203.0.113.9, 10.1.2.3") == "203.0.113.9"
        assert forwarded(server.url, "198.51.100.1, 203.0.113.9") == "203.0.113.9", (
            "what the client wrote is not believed"
        )


def remedy_for(url: str, ca_file: Path | None = None) -> str:
    with Millrace(url, TOKEN, ca_file=ca_file) as client, pytest.raises(Unreachable) as refused:
        client.tenants.list()
    return refused.value.remedy


def test_a_client_is_told_what_to_change(tmp_path: Path, authority: Authority, pair: tuple[Path, Path]) -> None:
    put(authority.issue("elsewhere"), pair)
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(authority.certificate)
    with served_app(tmp_path / "home") as server:
        assert "a name that the platform's certificate has" in remedy_for(server.url, trusted)
        assert "MILLRACE_CA_FILE" in remedy_for(server.url)
        assert "https://" in remedy_for(server.url.replace("https", "http"))
