"""That the data plane is ready, on which port it shows its metrics, and which JVM works for it.

The data plane writes both. `millrace up`, the server and the probe of Kubernetes read the port; the next data plane reads the
JVM, so that two never work on the same checkpoints. If the port is lost, the server says that the data plane does not answer;
if the JVM is lost, an orphaned one is not ended."""

from dataclasses import asdict, dataclass
from typing import Any

import orjson

from millrace.atomic import replace_file
from millrace.exchange.home import Home


@dataclass(frozen=True, slots=True)
class Jvm:
    """A process. Numbers are used again, so it is known by the moment of its start as well."""

    pid: int
    born: float


@dataclass(frozen=True, slots=True)
class DataPlaneNotes:
    home: Home

    def announce(self, metrics_port: int) -> None:
        """The data plane is ready."""
        replace_file(self.home.data_plane, orjson.dumps({"metrics_port": metrics_port}))

    def metrics_port(self) -> int | None:
        """None while the data plane has not said that it is ready."""
        try:
            return int(orjson.loads(self.home.data_plane.read_bytes())["metrics_port"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def withdraw(self) -> None:
        self.home.data_plane.unlink(missing_ok=True)

    def note_jvm(self, jvm: Jvm) -> None:
        replace_file(self.home.jvm, orjson.dumps(asdict(jvm)))

    def jvm(self) -> Jvm | None:
        try:
            found: dict[str, Any] = orjson.loads(self.home.jvm.read_bytes())
            return Jvm(**found)
        except (OSError, ValueError, TypeError):
            return None
