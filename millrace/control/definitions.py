"""Definitions and the stop list as files that every worker can read: immutable, named by what they hold."""

import os
import time
from pathlib import Path

from millrace.model.names import Home
from millrace.model.sinks import DELTA_KIND
from millrace.model.table import Definition


class DefinitionFiles:
    def __init__(self, home: Home) -> None:
        self._home = home
        for folder in (home.definitions, home.stops):
            folder.mkdir(parents=True, exist_ok=True)

    def publish(self, definition: Definition) -> None:
        path = self._home.definition(definition.fingerprint)
        if not path.exists():
            _write_whole(path, definition.to_json())
        for target in definition.table.targets:
            if target.kind != DELTA_KIND:
                self._home.used_sinks.mkdir(parents=True, exist_ok=True)
                (self._home.used_sinks / target.kind).touch()

    def read(self, fingerprint: str) -> Definition:
        return Definition.from_json(self._home.definition(fingerprint).read_bytes())

    def stop(self, import_id: str) -> None:
        """Holds when, for good: asked again it keeps its first moment, by which batches were judged."""
        path = self._home.stops / import_id
        if not path.exists():
            _write_whole(path, str(time.time_ns() // 1_000_000).encode())


def _write_whole(path: Path, body: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(body)
    partial.replace(path)
