"""Definitions of tables, by fingerprint. A definition never changes.

The controller writes one before the op that made it commits. The server, the accountant, the data plane, its workers and the
couriers read it. If a file is lost, tasks that need it fail and are tried again; the control store still holds it in
`revisions`, so an operator can put it back."""

from dataclasses import dataclass
from functools import lru_cache

from millrace.atomic import replace_file
from millrace.exchange.home import Home
from millrace.exchange.sink_kinds import SinkKinds
from millrace.model.table import Definition

MOST_CACHED = 4096


@dataclass(frozen=True, slots=True)
class DefinitionStore:
    home: Home

    def publish(self, definition: Definition) -> None:
        """Every process can read it when this returns."""
        path = self.home.definition(definition.fingerprint)
        if not path.exists():
            # Every row of the table needs it, for ever.
            replace_file(path, definition.to_json(), durable=True)
        SinkKinds(self.home).note(definition)

    def read(self, fingerprint: str) -> Definition:
        """Raises FileNotFoundError where nobody published it. Cached in each process."""
        return _read(self.home, fingerprint)

    def forget(self, fingerprint: str) -> None:
        """Other processes may read it from their caches for as long as they live."""
        self.home.definition(fingerprint).unlink(missing_ok=True)
        _read.cache_clear()


@lru_cache(maxsize=MOST_CACHED)
def _read(home: Home, fingerprint: str) -> Definition:
    return Definition.from_json(home.definition(fingerprint).read_bytes())
