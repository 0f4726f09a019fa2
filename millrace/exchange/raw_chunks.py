"""Raw chunks that a table keeps (`keep_raw_days`), so that its past input can be judged by another declaration.

Workers write each chunk as it came from `raw-input`: a sealed chunk stays sealed. What-ifs read them, retention deletes whole
days. If chunks are lost, what-ifs say how many are missing; nothing else needs them."""

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from millrace.atomic import replace_file
from millrace.exchange.home import Home

SUFFIX = ".chunk"
_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class RawChunks:
    home: Home

    def keep(self, tenant: str, table: str, import_id: str, number: int, version: int, record: bytes) -> None:
        """A chunk that is judged again is kept once. Durable when it returns."""
        name = f"{version:020d}-{_digest(import_id, number)}{SUFFIX}"
        path = self.home.raw_chunks(tenant, table) / _day(version) / name
        if not path.exists():
            replace_file(path, record)

    def since(self, tenant: str, table: str, version: int) -> list[Path]:
        """The chunks of this version and later ones, in the order of their versions."""
        first = f"{version:020d}"
        return [path for day in self._days(tenant, table, _day(version)) for path in _chunks(day) if path.name >= first]

    def tables(self) -> list[tuple[str, str]]:
        """Tenant and table, wherever something is kept."""
        return sorted((path.parent.name, path.name) for path in self.home.raw.glob("*/*") if path.is_dir())

    def forget(self, tenant: str, table: str, version: int) -> bool:
        """Deletes the days before the one of this version; whether there were any."""
        last = _day(version)
        gone = [day for day in self._days(tenant, table) if day.name < last]
        for day in gone:
            shutil.rmtree(day)
        return bool(gone)

    def _days(self, tenant: str, table: str, first: str = "") -> list[Path]:
        days = self.home.raw_chunks(tenant, table).glob("????-??-??")
        return sorted(day for day in days if day.name >= first)


def _chunks(day: Path) -> Iterator[Path]:
    yield from sorted(day.glob(f"*{SUFFIX}"))


def _day(version: int) -> str:
    """Versions count microseconds. The folder of a day makes it cheap to find and to delete what is old."""
    return datetime.fromtimestamp(version // _DAY_US * (_DAY_US // 1_000_000), UTC).date().isoformat()


def _digest(import_id: str, number: int) -> str:
    return hashlib.blake2b(f"{import_id} {number}".encode(), digest_size=16).hexdigest()
