"""Upkeep of the log: a snapshot in, a checkpoint of it out if one is due. Drops what is expired: log files, chunk ids,
and the names of removed files."""

import re
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from millrace.lake.actions import Metadata, now_ms
from millrace.lake.checkpoint import LOG_FOLDER, complete_checkpoints, write_checkpoint
from millrace.lake.feed import KEPT, has_feed
from millrace.lake.feed import MOST_VERSIONS as MOST_FEED_VERSIONS
from millrace.lake.log import Snapshot
from millrace.lake.retained import retained
from millrace.lake.state import TableState
from millrace.lake.store import Store

CHECKPOINT_INTERVAL = 20
# A checkpoint lists all files. The more files, the more commits share its cost.
LISTED_PER_CHECKPOINT = 10_000
# Versions that are always kept, however fast commits follow each other: active readers have some minutes.
MOST_VERSIONS = 1000
LEAST_RETENTION = timedelta(minutes=10)
# A table with a change feed keeps many versions. Listing them takes some milliseconds, and a remote store some seconds.
CHECKPOINTS_PER_CLEANING = 16

_VERSIONED = re.compile(r"_delta_log/(\d{20})\..+")


def checkpoint_if_due(store: Store, snapshot: Snapshot, chunk_memory: timedelta, log_retention: timedelta) -> Snapshot:
    """Writes a checkpoint every few versions, and in the place of damaged ones; drops old log files, and chunk ids that are
    expired or below the floor. A failure is harmless."""
    metadata = snapshot.metadata
    if metadata is None or not (_is_due(snapshot) or snapshot.damaged):
        return snapshot
    snapshot = _without_expired(snapshot, metadata, chunk_memory)
    # The commit is valid without a checkpoint. The next due commit tries again.
    with suppress(OSError):
        chunk_ids, removed = snapshot.transactions.columns(), snapshot.removed.values()
        version, files = snapshot.version, snapshot.files.values()
        write_checkpoint(store, version, snapshot.protocol, metadata, files, chunk_ids, removed)
        for name in snapshot.damaged:
            # Other engines do not step over it.
            store.delete(name)
        snapshot = replace(snapshot, damaged=())
        if not has_feed(metadata):
            clean(store, log_retention, MOST_VERSIONS)
        elif snapshot.version // CHECKPOINT_INTERVAL % CHECKPOINTS_PER_CLEANING == 0:
            clean(store, max(KEPT, log_retention), MOST_FEED_VERSIONS)
    return snapshot


def _without_expired(snapshot: Snapshot, metadata: Metadata, chunk_memory: timedelta) -> Snapshot:
    state = TableState.of(metadata)
    oldest_ms = max(now_ms() - chunk_memory // timedelta(milliseconds=1), state.settled_ms + 1)
    transactions = snapshot.transactions.since(oldest_ms, state.floor)
    removed = retained(snapshot.removed, snapshot.files, metadata)
    freed = snapshot.transactions.columns().weight - transactions.columns().weight
    freed += sum(file.weight for key, file in snapshot.removed.items() if key not in removed)
    return replace(snapshot, transactions=transactions, removed=removed, weight=snapshot.weight - freed)


def _is_due(snapshot: Snapshot) -> bool:
    listed = len(snapshot.files) + len(snapshot.transactions) + len(snapshot.removed)
    interval = CHECKPOINT_INTERVAL << (listed // LISTED_PER_CHECKPOINT).bit_length()
    return snapshot.version > 0 and snapshot.version % interval == 0


def clean(store: Store, retention: timedelta, most_versions: int) -> None:
    """Deletes log files that no version within the retention and none of the last versions needs."""
    entries = store.list(LOG_FOLDER)
    checkpoints = complete_checkpoints(entries)
    newest = max(checkpoints, default=-1)
    covering = -1
    for version, parts in checkpoints.items():
        least = retention if version > newest - most_versions else min(retention, LEAST_RETENTION)
        if all(part.modified_at <= now_ms() / 1000 - least.total_seconds() for part in parts):
            covering = max(covering, version)
    for entry in entries:
        match = _VERSIONED.fullmatch(entry.name)
        if match and int(match[1]) < covering:
            store.delete(entry.name)
