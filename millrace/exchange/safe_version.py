"""The version at or below which no row is still on its way.

The accountant writes it. The upkeep of tables and the couriers read it: below it tombstones and held rows can be forgotten.
If it is lost, nothing is forgotten until the accountant writes it again, within seconds."""

from dataclasses import dataclass

from millrace.atomic import replace_file
from millrace.exchange.home import Home


@dataclass(frozen=True, slots=True)
class SafeVersion:
    home: Home

    def write(self, version: int) -> None:
        replace_file(self.home.safe_version, str(version))

    def read(self) -> int | None:
        try:
            return int(self.home.safe_version.read_text())
        except (FileNotFoundError, ValueError):
            return None
