"""Upkeep of tables: which have had so many commits that merging small files and key files pays, and the merging itself."""

import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from millrace.exchange.places import Places
from millrace.exchange.safe_version import SafeVersion
from millrace.lake.batch import unpublished_names
from millrace.lake.core_share import CoreShare
from millrace.lake.schema import TableSpec
from millrace.lake.state import NO_FLOOR
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.lake.vacuum import RECORD, first_seen, vacuum
from millrace.model.imports import REPLAYABLE_US
from millrace.observe import observe
from millrace.seal.keyring import Keyring
from millrace.sink.context import SinkContext
from millrace.sink.delta.places import remote_store
from millrace.sink.delta.settings import DeltaRemoteSettings

COMMITS = 20
ROWS = 2_000_000
# Merging takes a quarter of the cores from a large load. So it waits for a pause, but not for ever.
LARGE_COMMIT_ROWS = 50_000
PAUSE_SECONDS = 10.0
LONGEST_WAIT_SECONDS = 600.0
# A reader may still hold a version this old. Superseded deletion vectors are kept as long.
REMOVED_FILES_KEPT = timedelta(days=7)
# No batch that could be retried needs a staged file this old.
STAGED_FILES_KEPT = timedelta(days=7)
# A replay has versions that are days old. Newer versions must be remembered, and the floor must stay below it.
REPLAYED_WITHIN = timedelta(microseconds=REPLAYABLE_US) + timedelta(days=1)
VACUUM_SECONDS = 600.0
IDLE = timedelta(hours=6)
# A cached file of a remote table.
COPIES_KEPT = timedelta(days=7)


class Due(NamedTuple):
    """A table by its folder; a remote one also by its place."""

    root: Path
    spec: TableSpec
    place: DeltaRemoteSettings | None = None


@dataclass(slots=True)
class _Wear:
    due: Due
    since: float
    commits: int = 0
    rows: int = 0

    @property
    def is_heavy(self) -> bool:
        return self.commits >= COMMITS or self.rows >= ROWS


class Upkeep:
    """Sinks report every commit here. The data plane asks, from another thread, which tables are due."""

    def __init__(self) -> None:
        self._worn: dict[Path, _Wear] = {}
        self._busy_until = 0.0
        self._lock = threading.Lock()

    def note(self, root: Path, spec: TableSpec, rows: int, place: DeltaRemoteSettings | None = None) -> None:
        now = time.monotonic()
        with self._lock:
            if rows >= LARGE_COMMIT_ROWS:
                self._busy_until = now + PAUSE_SECONDS
            due = Due(root, spec, place)
            wear = self._worn.setdefault(root, _Wear(due, now))
            wear.due = due
            wear.commits += 1
            wear.rows += rows

    def take_due(self) -> list[Due]:
        now = time.monotonic()
        with self._lock:
            pausing = now > self._busy_until
            worn = [(root, wear) for root, wear in self._worn.items() if wear.is_heavy]
            waited = [root for root, wear in worn if pausing or now - wear.since > LONGEST_WAIT_SECONDS]
            return [self._worn.pop(root).due for root in waited]


def tidy(due: Due, context: SinkContext, keyring: Keyring, settled: int, core_share: float = 1.0) -> None:
    """Merges the table's small files and key files, forgets what no late write can need, and deletes files that no reader
    and no retry can need. Writers are not blocked. `settled` is the safe version."""
    share = CoreShare(core_share)
    if due.place is not None:
        _tidy_remote(due, due.place, context, settled, share)
        return
    store = _store(due.root, context.places, keyring)
    LakeTable(store, due.spec).maintain(settled, share)
    if _is_vacuum_due(due.root):
        vacuum(store, REMOVED_FILES_KEPT, STAGED_FILES_KEPT)


def _store(root: Path, places: Places, keyring: Keyring) -> Store:
    """The last parts of a table's folder are its tenant and its name."""
    named = root.parent.name, root.name
    return places.error_store(keyring, *named) if root == places.errors(*named) else places.store(root)


def drop_delivered(places: Places, settled: int) -> None:
    """Deletes sealed rows that every sink has by now: they are older than every open import."""
    before = time.time() - STAGED_FILES_KEPT.total_seconds()
    for named in places.staged_tables():
        try:
            _drop_delivered(places.table_store(*named), places.staged(*named), min(before, settled / 1e6))
        except Exception as error:
            # A damaged table keeps its staged rows. The other tables are swept.
            observe("trouble", kind="upkeep", table="/".join(named), error=f"{type(error).__name__}: {error}"[:500])


def vacuum_idle(places: Places, keyring: Keyring) -> None:
    """Deletes files of tables that nobody writes any more, whose time is over: only commits make a table due."""
    for root in places.own_tables():
        try:
            if _is_idle(root):
                vacuum(_store(root, places, keyring), REMOVED_FILES_KEPT, STAGED_FILES_KEPT)
        except Exception as error:
            named = f"{root.parent.name}/{root.name}"
            observe("trouble", kind="upkeep", table=named, error=f"{type(error).__name__}: {error}"[:500])


def _is_idle(root: Path) -> bool:
    """Whether the last vacuum was long ago and has left something that can go now."""
    record, now = root / RECORD, time.time()
    if not record.is_file() or not _is_past(record, IDLE.total_seconds()):
        return False
    return any(since <= now - REMOVED_FILES_KEPT.total_seconds() for since in first_seen(Store(root)).values())


def _drop_delivered(table: Store, staged: Path, before: float) -> None:
    unpublished = unpublished_names(table)
    for path in staged.rglob("*"):
        is_old = path.is_file() and path.stat().st_mtime < before
        if is_old and str(path.relative_to(staged)) not in unpublished:
            path.unlink(missing_ok=True)


def _tidy_remote(due: Due, place: DeltaRemoteSettings, context: SinkContext, settled: int, share: CoreShare) -> None:
    """This machine has cached files of the table, in a folder TENANT/TABLE.PLACE, and files staged for it."""
    tenant, table = due.root.parent.name, due.root.name.rpartition(".")[0]
    store = remote_store(context, place, tenant, table)
    LakeTable(store, due.spec).maintain(settled, share)
    if _is_vacuum_due(due.root):
        vacuum(store, REMOVED_FILES_KEPT, STAGED_FILES_KEPT)
        vacuum(context.places.table_store(tenant, table), REMOVED_FILES_KEPT, STAGED_FILES_KEPT)
    store.trim(context.lake.copies_mb << 20, COPIES_KEPT)


def settled_version(safe_version: SafeVersion) -> int:
    """The accountant's safe version, but not above the age up to which rejected rows are replayed. Versions are
    microseconds."""
    replayed_since = (time.time_ns() // 1000) - REPLAYED_WITHIN // timedelta(microseconds=1)
    known = safe_version.read()
    return NO_FLOOR if known is None else min(known, replayed_since)


def _is_vacuum_due(root: Path) -> bool:
    """Listing a busy table's folder costs more than the files of a few minutes are worth."""
    try:
        return _is_past(root / RECORD, VACUUM_SECONDS)
    except FileNotFoundError:
        return True


def _is_past(path: Path, seconds: float) -> bool:
    """Whether the file is that old. Also if it is from the future: then the clock was wrong, and nobody waits for it."""
    return abs(time.time() - path.stat().st_mtime) >= seconds
