"""How the API is served: its port, TLS whose certificate may change while it runs, and proxies whose word counts."""

import ssl
import threading
from pathlib import Path
from typing import Any

from millrace.api.http_head import BoundedHttp
from millrace.api.websocket_head import BoundedWebSocket
from millrace.model.errors import Invalid
from millrace.model.frames import MAX_FRAME_BYTES
from millrace.observe import log, observe
from millrace.settings import ApiSettings

LOOK_SECONDS = 1.0


class LiveCertificate:
    """The certificate and its key, loaded again when their files change. New connections get the new one; a pair that cannot
    be used leaves the old one in place.

    Each pair is loaded into a context of its own, which a handshake gets only once the pair is whole."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = certificate, key
        self._seen = self._stamp()
        try:
            self.context = self._newest = self._loaded()
        except OSError as wrong:
            raise Invalid(
                f"The certificate {certificate} with the key {key} cannot be used: {wrong}.",
                remedy="Correct MILLRACE_API__TLS_CERT and MILLRACE_API__TLS_KEY (--tls-cert, --tls-key).",
            ) from None
        # Called in every handshake, whether or not the client names a server.
        self.context.sni_callback = self._choose

    def renew(self) -> None:
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self._newest = self._loaded()
        except OSError as wrong:
            observe("trouble", kind="tls", error=f"the new certificate cannot be used: {wrong}")
        else:
            log("certificate_renewed", file=str(self._files[0]))

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _first: ssl.SSLContext) -> None:
        connection.context = self._newest

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self._files)
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _stamp(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(file) for file in self._files]


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def serving_options(settings: ApiSettings) -> dict[str, Any]:
    """What uvicorn is told besides the application and where it listens."""
    options: dict[str, Any] = {
        "log_config": None,
        "http": BoundedHttp,
        "ws": BoundedWebSocket,
        "access_log": False,
        # Who asks and by which scheme is told in headers: only these addresses may do so.
        "proxy_headers": bool(settings.trusted_proxies),
        "forwarded_allow_ips": [str(network) for network in settings.trusted_proxies],
        # A stop must not wait for ever for those who follow events.
        "timeout_graceful_shutdown": 3,
        # Room for the sentence that says that a frame is too large; rows are compressed later, all of them together.
        "ws_max_size": 2 * MAX_FRAME_BYTES,
        "ws_per_message_deflate": False,
    }
    if settings.tls_cert is None or settings.tls_key is None:
        return options
    certificate = LiveCertificate(settings.tls_cert, settings.tls_key)
    threading.Thread(target=_keep_new, args=(certificate,), name="certificate", daemon=True).start()
    return {**options, "ssl_context_factory": lambda *_: certificate.context}


def _keep_new(certificate: LiveCertificate) -> None:
    pause = threading.Event()
    while not pause.wait(LOOK_SECONDS):
        certificate.renew()
