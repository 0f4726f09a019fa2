"""The kinds of sinks that some table names, other than Delta tables on the platform's own disk.

Whoever publishes a definition writes them. The data plane reads them: each kind has a query of its own. The accountant reads
them: it waits for the positions of these queries. If a mark is lost, rows of that kind are not delivered until the next
definition that names the kind; nothing is lost, because the query starts where it stopped."""

from dataclasses import dataclass

from millrace.exchange.home import Home
from millrace.model.sinks import DELTA_KIND
from millrace.model.table import Definition


@dataclass(frozen=True, slots=True)
class SinkKinds:
    home: Home

    def note(self, definition: Definition) -> None:
        for target in definition.table.targets:
            if target.kind != DELTA_KIND:
                self.home.used_sinks.mkdir(parents=True, exist_ok=True)
                (self.home.used_sinks / target.kind).touch()

    def used(self) -> list[str]:
        folder = self.home.used_sinks
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
