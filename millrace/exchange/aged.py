"""The version up to which a table's sinks were last asked to let old rows go.

Retention writes and reads it, in whichever server does the work. If it is lost, the sinks are asked once more, which changes
nothing."""

from dataclasses import dataclass

from millrace.atomic import replace_file
from millrace.exchange.home import Home


@dataclass(frozen=True, slots=True)
class AgedVersions:
    home: Home

    def last(self, tenant: str, table: str) -> int:
        """0 if the sinks were never asked."""
        try:
            return int(self.home.aged(tenant, table).read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def note(self, tenant: str, table: str, version: int) -> None:
        replace_file(self.home.aged(tenant, table), str(version))
