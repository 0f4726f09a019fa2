"""Which tables have had so many commits that merging their small files and key files pays, and the merging itself.
Roots and specs of written tables in, the ones that are due out."""

import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from millrace.exchange.places import Places
from millrace.exchange.safe_version import SafeVersion
from millrace.lake.schema import TableSpec
from millrace.lake.state import NO_FLOOR
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.lake.unpublished import unpublished_names
from millrace.lake.vacuum import RECORD, vacuum
from millrace.model.imports import REPLAYABLE_US
from millrace.seal.keyring import Keyring
from millrace.sink.context import SinkContext
from millrace.sink.delta.places import remote_store
from millrace.sink.delta.settings import DeltaRemoteSettings

COMMITS = 20
ROWS = 2_000_000
# Merging while a large file loads takes a quarter of the cores from it: wait for a pause, but not for ever.
LARGE_COMMIT_ROWS = 50_000
PAUSE_SECONDS = 10.0
LONGEST_WAIT_SECONDS = 600.0
# A reader may still hold a version this old.
REMOVED_FILES_KEPT = timedelta(days=1)
# A staged file this old belongs to no batch that could still be tried again.
STAGED_FILES_KEPT = timedelta(days=7)
# A replay keeps the versions of days ago: what would beat it must not be forgotten, nor the floor be above it.
REPLAYED_WITHIN = timedelta(microseconds=REPLAYABLE_US) + timedelta(days=1)
VACUUM_SECONDS = 600.0
# A copy of a file that lives elsewhere.
COPIES_KEPT = timedelta(days=7)


class Due(NamedTuple):
    """A table by its folder; a remote one also by its place."""

    root: Path
    spec: TableSpec
    place: DeltaRemoteSettings | None = None


@dataclass(slots=True)
class _Wear:
    spec: TableSpec
    place: DeltaRemoteSettings | None
    since: float
    commits: int = 0
    rows: int = 0

    @property
    def is_heavy(self) -> bool:
        return self.commits >= COMMITS or self.rows >= ROWS


class Upkeep:
    """Told of every commit by the sinks; asked by the data plane, from another thread, what is due."""

    def __init__(self) -> None:
        self._worn: dict[Path, _Wear] = {}
        self._busy_until = 0.0
        self._lock = threading.Lock()

    def note(self, root: Path, spec: TableSpec, rows: int, place: DeltaRemoteSettings | None = None) -> None:
        now = time.monotonic()
        with self._lock:
            if rows >= LARGE_COMMIT_ROWS:
                self._busy_until = now + PAUSE_SECONDS
            wear = self._worn.setdefault(root, _Wear(spec, place, now))
            wear.spec, wear.place = spec, place
            wear.commits += 1
            wear.rows += rows

    def take_due(self) -> list[Due]:
        now = time.monotonic()
        with self._lock:
            pausing = now > self._busy_until
            worn = [(root, wear) for root, wear in self._worn.items() if wear.is_heavy]
            waited = [root for root, wear in worn if pausing or now - wear.since > LONGEST_WAIT_SECONDS]
            due = [Due(root, self._worn[root].spec, self._worn[root].place) for root in waited]
            for root in waited:
                del self._worn[root]
        return due


def tidy(due: Due, context: SinkContext, keyring: Keyring, settled: int) -> None:
    """Merges the table's small files and key files, forgets what late writes can no longer need, and deletes what no reader
    and no retry can want. Writers go on. `settled` is the safe version."""
    if due.place is not None:
        _tidy_remote(due, due.place, context, settled)
        return
    store = _store(due.root, context.places, keyring)
    LakeTable(store, due.spec).maintain(settled)
    if _is_vacuum_due(due.root):
        vacuum(store, REMOVED_FILES_KEPT, STAGED_FILES_KEPT)


def _store(root: Path, places: Places, keyring: Keyring) -> Store:
    """The last parts of a table's folder are its tenant and its name."""
    named = root.parent.name, root.name
    return places.error_store(keyring, *named) if root == places.errors(*named) else Store(root)


def drop_delivered(places: Places, settled: int) -> None:
    """Sealed rows of all tables that every sink has by now: they are old, and so are all imports that are under way."""
    before = time.time() - STAGED_FILES_KEPT.total_seconds()
    for named in places.staged_tables():
        unpublished, staged = unpublished_names(places.table_store(*named)), places.staged(*named)
        for path in staged.rglob("*"):
            is_old = path.is_file() and path.stat().st_mtime < min(before, settled / 1e6)
            if is_old and str(path.relative_to(staged)) not in unpublished:
                path.unlink(missing_ok=True)


def _tidy_remote(due: Due, place: DeltaRemoteSettings, context: SinkContext, settled: int) -> None:
    """Of such a table, copies are here, in a folder TENANT/TABLE.PLACE, and what was staged for it."""
    tenant, table = due.root.parent.name, due.root.name.rpartition(".")[0]
    store = remote_store(context, place, tenant, table)
    LakeTable(store, due.spec).maintain(settled)
    if _is_vacuum_due(due.root):
        vacuum(store, REMOVED_FILES_KEPT, STAGED_FILES_KEPT)
        vacuum(context.places.table_store(tenant, table), REMOVED_FILES_KEPT, STAGED_FILES_KEPT)
    store.trim(context.lake.copies_mb << 20, COPIES_KEPT)


def settled_version(safe_version: SafeVersion) -> int:
    """What the accountant says, and at most the time before which rejected rows are not replayed: versions are
    microseconds."""
    replayed_since = (time.time_ns() // 1000) - REPLAYED_WITHIN // timedelta(microseconds=1)
    known = safe_version.read()
    return NO_FLOOR if known is None else min(known, replayed_since)


def _is_vacuum_due(root: Path) -> bool:
    """Listing a busy table's folder costs more than a few minutes' files are worth."""
    try:
        return (root / RECORD).stat().st_mtime <= time.time() - VACUUM_SECONDS
    except FileNotFoundError:
        return True
