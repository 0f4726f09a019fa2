"""The table's Delta log: the live files, and the only way to change them. Actions in, a new snapshot out.
A commit claims the next version by put-if-absent: of two writers one gets `Conflict` and must refresh.
"""

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta

import orjson
import pyarrow as pa

from millrace.lake.actions import Action, AddFile, DeletionVector, Metadata, Protocol, Transaction, now_ms
from millrace.lake.bounds import (
    MIB,
    MOST_COMMITS,
    MOST_LINE_BYTES,
    OURS,
    parsed,
    refuse_larger,
    too_large,
)
from millrace.lake.checkpoint import LOG_FOLDER, complete_checkpoints, read_checkpoint, write_checkpoint
from millrace.lake.state import TableState
from millrace.lake.store import Store
from millrace.model.errors import Corrupt, MillraceError

CHECKPOINT_INTERVAL = 20
# A checkpoint lists all files. The more files, the more commits share its cost.
LISTED_PER_CHECKPOINT = 10_000
# Versions that are always kept, however fast commits follow each other: active readers have some minutes.
MOST_VERSIONS = 1000
LEAST_RETENTION = timedelta(minutes=10)

MOST_TEXT = 300

_COMMIT = re.compile(r"_delta_log/(\d{20})\.json")
_VERSIONED = re.compile(r"_delta_log/(\d{20})\..+")


class Overweight(Exception):
    """A snapshot would take too much memory."""


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
    # What files and transactions take in memory, about.
    weight: int = 0
    # The identity of this version's file, as `Store.identity` tells it; None if it is not known.
    entry: str | None = field(default=None, compare=False)

    @property
    def live_rows(self) -> int:
        return sum(file.live_rows for file in self.files.values())


def commit_name(version: int) -> str:
    return f"{LOG_FOLDER}/{version:020}.json"


def load(store: Store, version: int | None = None) -> Snapshot:
    """The newest snapshot, or the one at `version`. Version -1 if there is no table."""
    entries = store.list(LOG_FOLDER)
    commits = {int(match[1]): entry for entry in entries if (match := _COMMIT.fullmatch(entry.name))}
    checkpoints = complete_checkpoints(entries)
    newest = max((*commits, *checkpoints), default=-1)
    target = newest if version is None else version
    base = max((known for known in checkpoints if known <= target), default=-1)
    snapshot = Snapshot()
    for part in checkpoints.get(base, ()):
        snapshot = _folded(store, snapshot, read_checkpoint(store, part), base, part.name)
    if base >= 0 and snapshot.metadata is None:
        raise Corrupt(
            f"{checkpoints[base][0].name} of the Delta table at {store.where} has no schema.",
            remedy="Restore the checkpoint from a copy.",
        )
    wanted = range(base + 1, target + 1)
    if len(wanted) > MOST_COMMITS:
        raise too_large(store.where, LOG_FOLDER, f"has {len(wanted)} versions behind its last checkpoint")
    missing = next((number for number in wanted if number not in commits), None)
    if missing is not None:
        raise Corrupt(
            f"Version {missing} of the Delta table at {store.where} is missing.",
            remedy=f"Versions from {base + 1} on must be in {LOG_FOLDER}, or a later version be asked for.",
        )
    needed = [commits[number] for number in wanted]
    for entry in needed:
        refuse_larger(store.where, entry.name, entry.size, store.bounds.log_bytes)
    # Asked before the file is read: one that is replaced meanwhile is read again at the next refresh.
    last = store.identity(commit_name(target)) if target in commits else None
    for number, body in zip(wanted, store.read_logs(needed), strict=True):
        snapshot = _folded(store, snapshot, _actions(body), number, commit_name(number))
    store.expect(snapshot.files)
    return replace(snapshot, entry=last)


def refresh(store: Store, snapshot: Snapshot) -> Snapshot:
    """The newest snapshot. Reads only the commits after a known one, if that is still the same: one that was damaged or
    replaced is found before anybody builds on it."""
    if snapshot.version < 0:
        return load(store)
    for _ in range(MOST_COMMITS):
        name = commit_name(snapshot.version + 1)
        try:
            body = store.read_log(name)
        except FileNotFoundError:
            store.expect(snapshot.files)
            # The log is cleaned from the oldest version on: if our own version exists, all later versions do.
            now = store.identity(commit_name(snapshot.version))
            return snapshot if now is not None and now == snapshot.entry else load(store)
        folded = _folded(store, snapshot, _actions(body), snapshot.version + 1, name)
        snapshot = replace(folded, entry=store.identity_of(name, len(body)))
    raise too_large(store.where, LOG_FOLDER, f"has got {MOST_COMMITS} versions since it was read")


def commit(store: Store, snapshot: Snapshot, actions: Sequence[Action]) -> Snapshot:
    """Commits the actions as the next version and returns its snapshot. Raises Conflict if the version is taken."""
    version = snapshot.version + 1
    information = {"commitInfo": {"timestamp": now_ms(), "operation": "WRITE", "engineInfo": "millrace"}}
    body = b"\n".join(orjson.dumps(action) for action in (information, *actions)) + b"\n"
    # Nobody could read it.
    refuse_larger(store.where, commit_name(version), len(body), store.bounds.log_bytes)
    if not store.put_if_absent(commit_name(version), body):
        raise Conflict(f"version {version} of {store.where} was committed by another writer; refresh and plan again")
    return replace(fold(snapshot, actions, version), entry=store.identity_of(commit_name(version), len(body)))


def fold(
    snapshot: Snapshot, actions: Iterable[Action], version: int, most_weight: int = OURS.snapshot_bytes
) -> Snapshot:
    """The snapshot after one commit. Removes come before adds, because a file with another deletion vector is both.
    Overweight if it would take more memory than `most_weight`."""
    files, transactions = dict(snapshot.files), snapshot.transactions
    protocol, metadata, added, done = snapshot.protocol, snapshot.metadata, [], {}
    weight, coming = snapshot.weight, 0
    for action in actions:
        if "add" in action:
            file = AddFile.from_json(action["add"])
            added.append(file)
            coming += file.weight
        elif "remove" in action:
            weight -= _remove(files, action["remove"])
        elif "txn" in action:
            transaction = Transaction.from_json(action["txn"])
            done[transaction.app_id] = transaction
            coming += transaction.weight
        elif "metaData" in action:
            metadata = Metadata.from_json(action["metaData"])
        elif "protocol" in action:
            protocol = Protocol.from_json(action["protocol"])
        if coming > most_weight:
            raise Overweight
    weight += coming - sum(files[file.path].weight for file in added if file.path in files)
    weight -= sum(transactions[app_id].weight for app_id in done if app_id in transactions)
    files.update((file.path, file) for file in added)
    if weight > most_weight:
        raise Overweight
    return Snapshot(version, protocol, metadata, files, {**transactions, **done} if done else transactions, weight)


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
    is_empty = True
    lines = io.BytesIO(body)
    # One byte more than a line may have: then it is refused.
    while line := lines.readline(MOST_LINE_BYTES + 2):
        if line := line.rstrip(b"\r\n"):
            is_empty, action = False, parsed(line)
            if not isinstance(action, dict):
                raise TypeError("an action is no object")
            yield action
    if is_empty:
        raise ValueError("it is empty")


def _folded(store: Store, snapshot: Snapshot, actions: Iterator[Action], version: int, name: str) -> Snapshot:
    """`name` is the file that the actions are from. A failure keeps no frames: they hold what was read."""
    try:
        return fold(snapshot, actions, version, store.bounds.snapshot_bytes)
    except Overweight:
        failure: MillraceError | None = None
    except (ValueError, LookupError, TypeError, AttributeError, pa.ArrowException) as error:
        failure = Corrupt(
            f"Version {version} of the Delta table at {store.where} is damaged, in {name}: "
            f"{type(error).__name__}: {str(error)[:MOST_TEXT]}.",
            remedy=f"Restore {name} from a copy.",
        )
    most = store.bounds.snapshot_bytes // MIB
    raise failure or too_large(store.where, name, f"makes the list of its files larger than {most} MiB")


def _remove(files: dict[str, AddFile], remove: Action) -> int:
    """The weight of what is gone."""
    known = files.get(remove["path"])
    if known is None:
        return 0
    vector = remove.get("deletionVector")
    if (DeletionVector.from_json(vector) if vector else None) == known.deletion_vector:
        del files[remove["path"]]
        return known.weight
    return 0
