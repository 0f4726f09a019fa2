"""The server's address and the administrators' token, for programs of the user who started the platform.

`millrace up` writes it, readable by that user alone. The CLI, the SDK, the ingestion managers and the server read it. If it
is lost, the next `millrace up` writes a new one with a new token."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from millrace.atomic import replace_file
from millrace.exchange.home import Home

_PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class ClientFile:
    url: str
    token: str = field(repr=False)


def client_path(root: Path) -> Path:
    return Home(root).client


def read_client_file(root: Path) -> ClientFile:
    """Raises OSError if there is none that can be read, and ValueError, KeyError or TypeError if it holds something else."""
    found = json.loads(client_path(root).read_text())
    return ClientFile(str(found["url"]), str(found["token"]))


def write_client_file(root: Path, client: ClientFile) -> None:
    replace_file(client_path(root), json.dumps({"url": client.url, "token": client.token}), mode=_PRIVATE)
