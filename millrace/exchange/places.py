"""Where tables, rejected rows, staged rows, copies of remote tables, checkpoints and scratch files are.

Everyone who opens a table asks here: the workers and the driver of the data plane write, the server and the accountant read.
Embedded, all places are folders below the home."""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from millrace.exchange.core_store import CoreStoreFile
from millrace.exchange.home import Home
from millrace.exchange.pins import Pins
from millrace.lake.store import Store
from millrace.model.names import checked_name
from millrace.model.queues import QueueKey
from millrace.seal.cipher import Seal
from millrace.seal.files import SealedStore
from millrace.seal.keyring import Keyring


@dataclass(frozen=True, slots=True)
class Places:
    """`durable`: what is written to tables survives a power cut."""

    home: Home
    durable: bool = False

    def core_store(self) -> CoreStoreFile:
        return CoreStoreFile(self.home)

    def table(self, tenant: str, table: str) -> Path:
        return self.home.table(tenant, table)

    def errors(self, tenant: str, table: str) -> Path:
        return self.home.table_errors(tenant, table)

    def copies(self, tenant: str, table: str, place: str) -> Path:
        return self.home.table_copies(tenant, table, place)

    def table_store(self, tenant: str, table: str) -> Store:
        return self.store(self.table(tenant, table))

    def store(self, root: Path) -> Store:
        """The files of a table, or of rows on their way into it, in one of these places."""
        return Store(root, self.durable)

    def error_store(self, keyring: Keyring, tenant: str, table: str, seal: Seal | None = None) -> SealedStore:
        """Rejected rows. The log of the table, and which of its rows are gone, is nobody's secret."""
        root = self.errors(tenant, table)
        return SealedStore(root, keyring, tenant, table, seal=seal, is_secret=_is_data_file, durable=self.durable)

    def store_for_rejects(self, keyring: Keyring, tenant: str, table: str, key: str | None, owner: str) -> Store:
        """Where rows of one import are added: sealed by its data key, or plain if it has none."""
        if key is None:
            return self.store(self.errors(tenant, table))
        return self.error_store(keyring, tenant, table, keyring.seal(tenant, table, key, owner))

    def staging_store(self, keyring: Keyring, tenant: str, table: str, seal: Seal | None = None) -> SealedStore:
        return SealedStore(self.staged(tenant, table), keyring, tenant, table, seal=seal, durable=self.durable)

    def staged(self, tenant: str, table: str) -> Path:
        return self.home.staged(tenant, table)

    def staged_tables(self) -> list[tuple[str, str]]:
        """The tables that ever had sealed rows, by tenant and name."""
        return [(path.parent.name, path.name) for path in sorted(self.home.all_staged.glob("*/*"))]

    def own_tables(self) -> list[Path]:
        """The folders of all tables here: of accepted rows and of rejected ones."""
        return [path for folder in (self.home.lake, self.home.errors) for path in sorted(folder.glob("*/*"))]

    def error_tables(self, tenant: str) -> list[str]:
        return sorted(path.name for path in (self.home.errors / checked_name("tenant", tenant)).glob("*"))

    @property
    def control_store(self) -> Path:
        """The SQLite file, where the operator names no other store."""
        return self.home.store

    @property
    def broker(self) -> Path:
        """The broker's own data, where the platform runs it."""
        return self.home.broker

    @property
    def broker_passwords(self) -> Path:
        """Of the broker's accounts, unless the settings name another folder."""
        return self.home.broker_passwords

    def pins(self, key: QueueKey) -> Pins:
        return Pins(self.home, key)

    def checkpoint(self, query: str) -> Path:
        return self.home.checkpoints / query

    def scratch(self) -> Path:
        """A folder whose content may go at any restart."""
        self.home.scratch.mkdir(parents=True, exist_ok=True)
        return self.home.scratch

    def spool(self) -> Path:
        """A folder for uploads that the server cannot cut while they arrive."""
        self.home.staging.mkdir(parents=True, exist_ok=True)
        return self.home.staging

    def clear_spool(self) -> None:
        """What was spooled for an upload does not outlive the server that received it."""
        for spooled in self.home.staging.iterdir() if self.home.staging.is_dir() else ():
            spooled.unlink(missing_ok=True)

    def below_home(self, text: str) -> str:
        """The text without the home's own path: what is below it keeps its path from there."""
        for root in (os.path.abspath(self.home.root), str(self.home.root)):
            text = text.replace(f"{root}{os.sep}", "")
        return text

    def is_on_our_disk(self, folder: Path) -> bool:
        """Whether a folder shares the disk that everything else needs. A tenant's tables may be on a disk of their own."""
        return _device(folder) == _device(self.home.root)

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.home.root).free


def places_below(root: Path) -> Places:
    return Places(Home(root))


def _device(folder: Path) -> int | None:
    """Of the folder, or of the nearest one above it that can be asked."""
    for known in (folder, *folder.parents):
        with suppress(OSError):
            return os.stat(known).st_dev
    return None


def _is_data_file(name: str) -> bool:
    return "/" not in name and name.endswith(".parquet")
