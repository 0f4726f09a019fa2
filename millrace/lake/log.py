"""The table's Delta log: the live files, and the only way to change them. Actions in, a new snapshot out.
A commit claims the next version by put-if-absent: of two writers one gets `Conflict` and must refresh.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta

import orjson
import pyarrow as pa

from millrace.lake.actions import Action, AddFile, DeletionVector, Metadata, Protocol, Transaction, now_ms
from millrace.lake.checkpoint import LOG_FOLDER, complete_checkpoints, read_checkpoint, write_checkpoint
from millrace.lake.state import TableState
from millrace.lake.store import Store
from millrace.model.errors import Corrupt

CHECKPOINT_INTERVAL = 20
# A checkpoint lists all files. The more files, the more commits share its cost.
LISTED_PER_CHECKPOINT = 10_000
# Versions that are always kept, however fast commits follow each other: active readers have some minutes.
MOST_VERSIONS = 1000
LEAST_RETENTION = timedelta(minutes=10)

_COMMIT = re.compile(r"_delta_log/(\d{20})\.json")
_VERSIONED = re.compile(r"_delta_log/(\d{20})\..+")


class Conflict(Exception):
    """Another writer has committed this version. Refresh and plan again."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The table at one version; -1 before the first commit."""

    version: int = -1
    protocol: Protocol = field(default_factory=Protocol)
    metadata: Metadata | None = None
    files: Mapping[str, AddFile] = field(default_factory=dict)
    transactions: Mapping[str, Transaction] = field(default_factory=dict)

    @property
    def live_rows(self) -> int:
        return sum(file.live_rows for file in self.files.values())


def commit_name(version: int) -> str:
    return f"{LOG_FOLDER}/{version:020}.json"


def load(store: Store, version: int | None = None) -> Snapshot:
    """The newest snapshot, or the one at `version`. Version -1 if there is no table."""
    entries = store.list(LOG_FOLDER)
    commits = {int(match[1]) for entry in entries if (match := _COMMIT.fullmatch(entry.name))}
    checkpoints = complete_checkpoints(entries)
    newest = max((*commits, *checkpoints), default=-1)
    target = newest if version is None else version
    base = max((known for known in checkpoints if known <= target), default=-1)
    snapshot = Snapshot()
    if base >= 0:
        snapshot = _folded(store, snapshot, read_checkpoint(store, [part.name for part in checkpoints[base]]), base)
    wanted = range(base + 1, target + 1)
    missing = next((number for number in wanted if number not in commits), None)
    if missing is not None:
        raise Corrupt(
            f"Version {missing} of the Delta table at {store.where} is missing.",
            remedy=f"Versions from {base + 1} on must be in {LOG_FOLDER}, or a later version be asked for.",
        )
    for number, body in zip(wanted, store.read_all([commit_name(number) for number in wanted]), strict=True):
        snapshot = _folded(store, snapshot, _actions(body), number)
    store.expect(snapshot.files)
    return snapshot


def refresh(store: Store, snapshot: Snapshot) -> Snapshot:
    """The newest snapshot. Reads only the commits after a known one."""
    if snapshot.version < 0:
        return load(store)
    while True:
        try:
            body = store.read(commit_name(snapshot.version + 1))
        except FileNotFoundError:
            store.expect(snapshot.files)
            # The log is cleaned from the oldest version on: if our own version exists, all later versions do.
            return snapshot if store.exists(commit_name(snapshot.version)) else load(store)
        snapshot = _folded(store, snapshot, _actions(body), snapshot.version + 1)


def commit(store: Store, snapshot: Snapshot, actions: Sequence[Action]) -> Snapshot:
    """Commits the actions as the next version and returns its snapshot. Raises Conflict if the version is taken."""
    version = snapshot.version + 1
    information = {"commitInfo": {"timestamp": now_ms(), "operation": "WRITE", "engineInfo": "millrace"}}
    body = b"\n".join(orjson.dumps(action) for action in (information, *actions)) + b"\n"
    if not store.put_if_absent(commit_name(version), body):
        raise Conflict(f"version {version} of {store.where} was committed by another writer; refresh and plan again")
    return fold(snapshot, actions, version)


def fold(snapshot: Snapshot, actions: Iterable[Action], version: int) -> Snapshot:
    """The snapshot after one commit. Removes come before adds, because a file with another deletion vector is both."""
    files, transactions = dict(snapshot.files), snapshot.transactions
    protocol, metadata, added, done = snapshot.protocol, snapshot.metadata, [], {}
    for action in actions:
        if "add" in action:
            added.append(AddFile.from_json(action["add"]))
        elif "remove" in action:
            _remove(files, action["remove"])
        elif "txn" in action:
            transaction = Transaction.from_json(action["txn"])
            done[transaction.app_id] = transaction
        elif "metaData" in action:
            metadata = Metadata.from_json(action["metaData"])
        elif "protocol" in action:
            protocol = Protocol.from_json(action["protocol"])
    files.update((file.path, file) for file in added)
    return Snapshot(version, protocol, metadata, files, {**transactions, **done} if done else transactions)


def checkpoint_if_due(store: Store, snapshot: Snapshot, chunk_memory: timedelta, log_retention: timedelta) -> Snapshot:
    """Writes a checkpoint every few versions; drops old log files, and chunk ids that are expired or below the floor.
    A failure is harmless."""
    metadata = snapshot.metadata
    if metadata is None or not _is_due(snapshot):
        return snapshot
    oldest_ms = now_ms() - chunk_memory // timedelta(milliseconds=1)
    floor = TableState.of(metadata).floor
    kept = {
        chunk: done
        for chunk, done in snapshot.transactions.items()
        if done.updated_ms >= oldest_ms and done.version > floor
    }
    snapshot = replace(snapshot, transactions=kept)
    # The commit is valid without a checkpoint. The next due commit tries again.
    with suppress(OSError):
        write_checkpoint(store, snapshot.version, snapshot.protocol, metadata, snapshot.files.values(), kept.values())
        clean(store, log_retention)
    return snapshot


def _is_due(snapshot: Snapshot) -> bool:
    listed = len(snapshot.files) + len(snapshot.transactions)
    interval = CHECKPOINT_INTERVAL << (listed // LISTED_PER_CHECKPOINT).bit_length()
    return snapshot.version > 0 and snapshot.version % interval == 0


def clean(store: Store, retention: timedelta) -> None:
    """Deletes log files that no version within the retention and none of the last versions needs."""
    entries = store.list(LOG_FOLDER)
    checkpoints = complete_checkpoints(entries)
    newest = max(checkpoints, default=-1)
    covering = -1
    for version, parts in checkpoints.items():
        least = retention if version > newest - MOST_VERSIONS else min(retention, LEAST_RETENTION)
        if all(part.modified_at <= now_ms() / 1000 - least.total_seconds() for part in parts):
            covering = max(covering, version)
    for entry in entries:
        match = _VERSIONED.fullmatch(entry.name)
        if match and int(match[1]) < covering:
            store.delete(entry.name)


def _actions(body: bytes) -> Iterator[Action]:
    """Every writer says at least who it is. An entry without anything was cut off: whatever it said is lost."""
    lines = [line for line in body.splitlines() if line]
    if not lines:
        raise ValueError("it is empty")
    yield from (orjson.loads(line) for line in lines)


def _folded(store: Store, snapshot: Snapshot, actions: Iterator[Action], version: int) -> Snapshot:
    try:
        return fold(snapshot, actions, version)
    except (ValueError, LookupError, TypeError, AttributeError, pa.ArrowException) as error:
        raise Corrupt(
            f"Version {version} of the Delta table at {store.where} is damaged: {type(error).__name__}: {error}.",
            remedy=f"Restore its file in {LOG_FOLDER} from a copy.",
        ) from error


def _remove(files: dict[str, AddFile], remove: Action) -> None:
    known = files.get(remove["path"])
    if known is None:
        return
    vector = remove.get("deletionVector")
    if (DeletionVector.from_json(vector) if vector else None) == known.deletion_vector:
        del files[remove["path"]]
