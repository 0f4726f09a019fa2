"""The server's address and the administrators' token, for programs of the user who started the platform.

`millrace up` writes it, readable by that user alone. The CLI, the SDK, the ingestion managers and the server read it. If it
is lost, the next `millrace up` writes a new one with a new token."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from millrace.atomic import replace_file
from millrace.exchange.home import Home

_PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class ClientFile:
    """`certificate` is the file that the server's certificate is in, if it speaks TLS."""

    url: str
    token: str = field(repr=False)
    certificate: str | None = None


def client_path(root: Path) -> Path:
    return Home(root).client


def read_client_file(root: Path) -> ClientFile:
    """Raises OSError if there is none that can be read, and ValueError, KeyError or TypeError if it holds something else."""
    found = json.loads(client_path(root).read_text())
    url, token = str(found["url"]), str(found["token"])
    certificate = found.get("certificate")
    return ClientFile(url, token, None if certificate is None else str(certificate))


def write_client_file(root: Path, client: ClientFile) -> None:
    written = {name: value for name, value in asdict(client).items() if value is not None}
    replace_file(client_path(root), json.dumps(written), mode=_PRIVATE)
