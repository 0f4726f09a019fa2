"""Where the platform is and how to prove who asks: MILLRACE_URL, MILLRACE_TOKEN and MILLRACE_CA_FILE, else client.json in
the home.

Refuses a home without client.json, and a client.json that is not what `millrace up` writes."""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from millrace.client.trust import Trust
from millrace.exchange.client_file import client_path, read_client_file
from millrace.model.errors import Invalid, Unavailable


@dataclass(frozen=True, slots=True)
class Endpoint:
    url: str
    token: str = field(repr=False)
    trust: Trust = field(default_factory=Trust, compare=False)

    def tls(self) -> ssl.SSLContext | None:
        """What a connection to it is made with; None if it speaks no TLS."""
        return self.trust.context() if self.url.startswith("https:") else None

    def __post_init__(self) -> None:
        """The token is a header of one line, and no message shows it. Messages show the address, so it holds no password."""
        if not _is_address(self.url):
            raise Invalid(
                "The address of the platform is not one of HTTP.",
                remedy="Write http://HOST:PORT or https://HOST:PORT, without user and password.",
            )
        if not (self.token.isascii() and self.token.isprintable() and self.token == self.token.strip()):
            raise Invalid(
                f"The token for {self.url} holds characters that no token has.",
                remedy="Set MILLRACE_TOKEN to the token as it was shown, without spaces or line breaks around it.",
            )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
        )
    except ValueError:
        return False


def default_home(environ: Mapping[str, str] = os.environ) -> Path:
    """MILLRACE_HOME, else a folder in the user's home."""
    return Path(environ["MILLRACE_HOME"]) if environ.get("MILLRACE_HOME") else Path.home() / ".millrace"


def find_endpoint(home: Path | None = None, environ: Mapping[str, str] = os.environ) -> Endpoint:
    """A home that is named wins over the environment, and the environment over the default home."""
    if home is None and environ.get("MILLRACE_URL"):
        named = environ.get("MILLRACE_CA_FILE")
        trust = Trust(Path(named) if named else None)
        url, token = environ["MILLRACE_URL"].rstrip("/"), environ.get("MILLRACE_TOKEN", "")
        _refuse_settings(url, token)
        return Endpoint(url, token, trust)
    return read_endpoint(home or default_home(environ))


def _refuse_settings(url: str, token: str) -> None:
    """In terms of the variables. A URL may hold a password where none belongs, and then it is not shown."""
    if not _is_address(url):
        shown = "" if "@" in url else f" is {url!r:.60} and"
        wrong = f"MILLRACE_URL{shown} is not http://HOST:PORT or https://HOST:PORT, without user and password."
        raise Invalid(wrong, remedy="For example: MILLRACE_URL=http://127.0.0.1:8420", code="bad_setting")
    if not token:
        wrong = f"MILLRACE_URL is {url}, and MILLRACE_TOKEN is not set."
        raise Invalid(wrong, remedy="For example: MILLRACE_TOKEN=mr_… as `token create` showed it", code="bad_setting")


def read_endpoint(home: Path) -> Endpoint:
    path = client_path(home)
    try:
        found = read_client_file(home)
        pinned = None if found.certificate is None else Path(found.certificate)
        return Endpoint(found.url.rstrip("/"), found.token, Trust(pinned=pinned))
    except FileNotFoundError:
        raise Unavailable(
            f"No platform has been started in {home}.",
            remedy=f"Run `millrace --home {home} up`, or set MILLRACE_URL and MILLRACE_TOKEN to use one elsewhere.",
        ) from None
    except OSError as failed:
        raise Unavailable(
            f"{path} cannot be read: {failed.strerror}.", remedy="Run as the user who started the platform."
        ) from None
    except (ValueError, KeyError, TypeError):
        raise Invalid(
            f"{path} does not hold a url and a token.", remedy="Start the platform again: it writes the file anew."
        ) from None
