"""Which certificates of a platform a client accepts: those that the system trusts, those of an authority that was named, or
the very certificate of a platform on this machine."""

import ssl
import threading
from dataclasses import dataclass, field
from pathlib import Path

from millrace.model.errors import Invalid

_END = "-----END CERTIFICATE-----"


@dataclass(slots=True)
class Trust:
    """`ca_file` holds certificates of authorities. `pinned` is the platform's own certificate file, of which the first is
    accepted whatever address it was asked at; it may be renewed meanwhile."""

    ca_file: Path | None = None
    pinned: Path | None = None
    _context: ssl.SSLContext | None = field(default=None, repr=False)
    _added: set[str] = field(default_factory=set, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def context(self) -> ssl.SSLContext:
        """Always the same one; to be asked for before each connection."""
        with self._lock:
            if self._context is None:
                self._context = self._made()
            if self.pinned is not None:
                self._pin(self._context, self.pinned)
            return self._context

    def _made(self) -> ssl.SSLContext:
        if self.pinned is None:
            try:
                return ssl.create_default_context(cafile=self.ca_file)
            except OSError as wrong:
                remedy = "Give a file with PEM certificates (MILLRACE_CA_FILE)."
                raise Invalid(f"{self.ca_file} holds no certificates: {wrong}.", remedy=remedy) from None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # Its name is the one that others know it by. That it is this one is proof enough.
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    def _pin(self, context: ssl.SSLContext, file: Path) -> None:
        """Only the first certificate: those behind it are of authorities, which vouch for others too."""
        try:
            first = file.read_text().partition(_END)[0] + _END
        except OSError:
            return
        if first not in self._added:
            try:
                context.load_verify_locations(cadata=first)
            except (ssl.SSLError, ValueError):
                return
            self._added.add(first)
