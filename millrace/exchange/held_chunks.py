"""Sealed chunks that nobody can read now, because their tenant's keys are out of reach.

Workers put them here instead of waiting, so that the chunks of other tenants go on. While something of a tenant is here, its
further sealed chunks follow without asking for a key. The data plane appends all of them to `raw-input` again once the keys
answer, and releases each when it is judged. The accountant asks which chunks of a stopped import were here, because the
import ends with their verdicts. If held chunks are lost, their imports wait for verdicts that do not come."""

import hashlib
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from millrace.atomic import UNFINISHED, replace_file
from millrace.exchange.home import Home

SUFFIX = ".chunk"
# Far longer than a fact is on its way to the ledger.
MARKS_KEPT_SECONDS = 86_400.0
# Far longer than a chunk is written.
UNFINISHED_KEPT_SECONDS = 3600.0
# Which file of a name this is: a chunk that is held again has another one.
Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class HeldChunks:
    home: Home

    def hold(self, tenant: str, import_id: str, number: int, record: bytes) -> None:
        """Durable when it returns."""
        replace_file(self.home.held_chunks(tenant) / f"{_digest(import_id)}-{number:08d}{SUFFIX}", record)

    def has_any(self, tenant: str) -> bool:
        """A worker that is killed in `hold` leaves a folder with an unfinished file: that is nothing."""
        try:
            with os.scandir(self.home.held_chunks(tenant)) as entries:
                return any(entry.name.endswith(SUFFIX) for entry in entries)
        except FileNotFoundError:
            return False

    def tenants(self) -> list[str]:
        """Those of whom something is held."""
        folders = self.home.held.iterdir() if self.home.held.is_dir() else ()
        return sorted(path.name for path in folders if self.has_any(path.name))

    def held(self, tenant: str) -> dict[str, Identity]:
        found = {}
        for path in sorted(self.home.held_chunks(tenant).glob(f"*{SUFFIX}")):
            with suppress(FileNotFoundError):
                status = path.stat()
                found[path.name] = status.st_ino, status.st_mtime_ns
        return found

    def read(self, tenant: str, name: str) -> bytes:
        return (self.home.held_chunks(tenant) / name).read_bytes()

    def release(self, tenant: str, name: str) -> None:
        """The chunk is judged. For a while it is still known that it was here."""
        mark = self._mark(tenant, name)
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
        (self.home.held_chunks(tenant) / name).unlink(missing_ok=True)
        with suppress(OSError):
            self.home.held_chunks(tenant).rmdir()

    def numbers(self, tenant: str, import_id: str) -> set[int]:
        """The chunks of an import that are here, or were within the last day."""
        held, digest = self.home.held_chunks(tenant), _digest(import_id)
        found = (*held.glob(f"{digest}-*{SUFFIX}"), *self._mark(tenant, "").glob(f"{digest}-*{SUFFIX}"))
        return {int(path.stem.rpartition("-")[2]) for path in found}

    def forget_unfinished(self) -> None:
        """What killed workers left behind, and folders in which nothing is."""
        latest = time.time() - UNFINISHED_KEPT_SECONDS
        for folder in self.home.held.glob("*"):
            for path in folder.glob(f".*{UNFINISHED}"):
                with suppress(FileNotFoundError):
                    if path.stat().st_mtime < latest:
                        path.unlink()
            with suppress(OSError):
                folder.rmdir()

    def forget_released(self) -> None:
        latest = time.time() - MARKS_KEPT_SECONDS
        for mark in self.home.released_chunks.glob(f"*/*{SUFFIX}"):
            with suppress(FileNotFoundError):
                if mark.stat().st_mtime < latest:
                    mark.unlink()

    def _mark(self, tenant: str, name: str) -> Path:
        return self.home.released_chunks / self.home.held_chunks(tenant).name / name


def _digest(import_id: str) -> str:
    return hashlib.blake2b(import_id.encode(), digest_size=16).hexdigest()
