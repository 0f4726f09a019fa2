"""Sealed chunks that nobody can read now, because their tenant's keys are out of reach.

Workers put them here instead of waiting, so that the chunks of other tenants go on. While something of a tenant is here, its
further sealed chunks follow without asking for a key. The data plane appends all of them to `raw-input` again once the keys
answer. If they are lost, their imports wait for verdicts that do not come, until someone cancels them."""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from millrace.atomic import replace_file
from millrace.exchange.home import Home
from millrace.model.names import chunk_id

SUFFIX = ".chunk"


@dataclass(frozen=True, slots=True)
class HeldChunks:
    home: Home

    def hold(self, tenant: str, import_id: str, number: int, record: bytes) -> None:
        """Durable when it returns. Held again, a chunk is the same."""
        name = hashlib.blake2b(chunk_id(import_id, number).encode(), digest_size=16).hexdigest()
        replace_file(self.home.held_chunks(tenant) / f"{name}{SUFFIX}", record)

    def has_any(self, tenant: str) -> bool:
        return self.home.held_chunks(tenant).exists()

    def tenants(self) -> list[str]:
        """Those of whom something is held."""
        return sorted(path.name for path in self.home.held.iterdir()) if self.home.held.is_dir() else []

    def held(self, tenant: str) -> Iterator[tuple[str, bytes]]:
        """A name and a record each."""
        for path in self._paths(tenant):
            with suppress(FileNotFoundError):
                yield path.name, path.read_bytes()
        self._leave(tenant)

    def drop(self, tenant: str, name: str) -> None:
        (self.home.held_chunks(tenant) / name).unlink(missing_ok=True)
        self._leave(tenant)

    def _paths(self, tenant: str) -> list[Path]:
        folder = self.home.held_chunks(tenant)
        return sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: path.name)

    def _leave(self, tenant: str) -> None:
        """The empty folder goes: it says that something is held."""
        with suppress(OSError):
            self.home.held_chunks(tenant).rmdir()
