"""The table's Delta log: the live files, and the only way to change them. Actions in, a new snapshot out.
A commit claims the next version by put-if-absent: of two writers one gets `Conflict` and must refresh.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import orjson
import pyarrow as pa

from millrace.lake.actions import Action, AddFile, Metadata, Protocol, now_ms
from millrace.lake.bounds import MIB, MOST_COMMITS, OURS, refuse_larger, too_large
from millrace.lake.checkpoint import LOG_FOLDER, complete_checkpoints, read_checkpoint, unread_checkpoint
from millrace.lake.checkpoint_columns import CheckpointContent, Overweight
from millrace.lake.chunk_ids import ChunkIds
from millrace.lake.entries import EntryContent, actions_of
from millrace.lake.overlay import Overlay
from millrace.lake.retained import RemovedFiles, with_removed
from millrace.lake.store import Store
from millrace.lake.sums import summed
from millrace.model.errors import Corrupt, MillraceError
from millrace.observe import log as note
from millrace.outbound.objects import Entry

MOST_TEXT = 300

Read = TypeVar("Read")

_COMMIT = re.compile(r"_delta_log/(\d{20})\.json")


class Conflict(Exception):
    """Another writer has committed this version. Refresh and plan again."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The table at one version; -1 before the first commit."""

    version: int = -1
    protocol: Protocol = field(default_factory=Protocol)
    metadata: Metadata | None = None
    files: Overlay[str, AddFile] = field(default_factory=Overlay)
    transactions: ChunkIds = field(default_factory=ChunkIds)
    # Files that only older versions name.
    removed: RemovedFiles = field(default_factory=Overlay, compare=False)
    # What all of these take in memory, about.
    weight: int = field(default=0, compare=False)
    # Checkpoints that could not be read.
    damaged: tuple[str, ...] = field(default=(), compare=False)
    # The identity of this version's file, as `Store.identity` tells it; None if it is not known.
    entry: str | None = field(default=None, compare=False)

    @property
    def live_rows(self) -> int:
        """Without those of files whose writer did not tell the number."""
        return sum(file.live_rows for file in self.files.values() if file.rows >= 0)


def commit_name(version: int) -> str:
    return f"{LOG_FOLDER}/{version:020}.json"


def load(store: Store, version: int | None = None) -> Snapshot:
    """The newest snapshot, or the one at `version`. Version -1 if there is no table."""
    entries = store.list(LOG_FOLDER)
    commits = {int(match[1]): entry for entry in entries if (match := _COMMIT.fullmatch(entry.name))}
    checkpoints = complete_checkpoints(entries)
    newest = max((*commits, *checkpoints), default=-1)
    target = newest if version is None else version
    snapshot, failure = _base(store, {known: parts for known, parts in checkpoints.items() if known <= target})
    wanted = range(snapshot.version + 1, target + 1)
    missing = next((number for number in wanted if number not in commits), None)
    if missing is not None:
        raise failure or _missing(store, entries, missing)
    if len(wanted) > MOST_COMMITS:
        raise too_large(store.where, LOG_FOLDER, f"has {len(wanted)} versions behind its last checkpoint")
    needed = [commits[number] for number in wanted]
    for entry in needed:
        refuse_larger(store.where, entry.name, entry.size, store.bounds.log_bytes)
    # Asked before the file is read: one that is replaced meanwhile is read again at the next refresh.
    last = store.identity(commit_name(target)) if target in commits else None
    for number, body in zip(wanted, store.read_logs(needed), strict=True):
        snapshot = _folded(store, snapshot, body, number)
    store.expect(snapshot.files)
    return replace(snapshot, entry=last)


def _base(store: Store, checkpoints: dict[int, list[Entry]]) -> tuple[Snapshot, Corrupt | None]:
    """The newest checkpoint that can be read, and what is wrong with the first one that cannot."""
    failure, damaged = None, list[str]()
    for version, parts in sorted(checkpoints.items(), reverse=True):
        try:
            return replace(_from_checkpoint(store, version, parts), damaged=tuple(damaged)), failure
        except Corrupt as error:
            failure = failure or error
            damaged += [part.name for part in parts]
            note("checkpoint_stepped_over", table=store.where, checkpoint=parts[0].name, reason=error.message)
    return Snapshot(damaged=tuple(damaged)), failure


def _from_checkpoint(store: Store, version: int, parts: Sequence[Entry]) -> Snapshot:
    content = CheckpointContent(store.bounds.snapshot_bytes)
    for part in parts:
        _readable(store, version, part.name, partial(read_checkpoint, store, part, content))
    if content.metadata is None:
        raise Corrupt(
            f"{parts[0].name} of the Delta table at {store.where} has no schema.",
            remedy="Restore the checkpoint from a copy.",
        )
    removed, _ = with_removed(Overlay(), content.removed, content.files)
    files, chunk_ids = Overlay(content.files), ChunkIds(content.chunk_ids)
    return Snapshot(version, content.protocol, content.metadata, files, chunk_ids, removed, content.weight)


def _missing(store: Store, entries: Sequence[Entry], version: int) -> Corrupt:
    other = unread_checkpoint(entries)
    if other is not None:
        return Corrupt(
            f"Version {version} of the Delta table at {store.where} is only in {other}, a checkpoint of Delta's version 2.",
            remedy="Have its writer make classic checkpoints (delta.checkpointPolicy = classic), and write one.",
        )
    return Corrupt(
        f"Version {version} of the Delta table at {store.where} is missing.",
        remedy=f"Versions from {version} on must be in {LOG_FOLDER}, or a later version be asked for.",
    )


def refresh(store: Store, snapshot: Snapshot) -> Snapshot:
    """The newest snapshot. Reads only the commits after a known one, if that is still the same: one that was damaged or
    replaced is found before anybody builds on it."""
    if snapshot.version < 0:
        return load(store)
    for number in range(MOST_COMMITS):
        name = commit_name(snapshot.version + 1)
        try:
            body = store.read_log(name)
        except FileNotFoundError:
            store.expect(snapshot.files)
            # The log is cleaned from the oldest version on: if our own version exists, all later versions do.
            return snapshot if _is_unchanged(store, snapshot) else load(store)
        if number == 0 and not _is_unchanged(store, snapshot):
            return load(store)
        folded = _folded(store, snapshot, body, snapshot.version + 1)
        snapshot = replace(folded, entry=store.identity_of(name, len(body)))
    raise too_large(store.where, LOG_FOLDER, f"has got {MOST_COMMITS} versions since it was read")


def _is_unchanged(store: Store, snapshot: Snapshot) -> bool:
    now = store.identity(commit_name(snapshot.version))
    return now is not None and now == snapshot.entry


def commit(store: Store, snapshot: Snapshot, actions: Sequence[Action]) -> Snapshot:
    """Commits the actions as the next version and returns its snapshot. Raises Conflict if the version is taken."""
    version = snapshot.version + 1
    information = {"timestamp": now_ms(), "operation": "WRITE", "engineInfo": "millrace"}
    body = summed(information, b"".join(orjson.dumps(action) + b"\n" for action in actions))
    # Nobody could read it.
    refuse_larger(store.where, commit_name(version), len(body), store.bounds.log_bytes)
    if not store.put_if_absent(commit_name(version), body):
        raise Conflict(f"version {version} of {store.where} was committed by another writer; refresh and plan again")
    return replace(fold(snapshot, actions, version), entry=store.identity_of(commit_name(version), len(body)))


def fold(
    snapshot: Snapshot, actions: Iterable[Action], version: int, most_weight: int = OURS.snapshot_bytes
) -> Snapshot:
    """The snapshot after one commit. Removes come before adds, because a file with another deletion vector is both.
    Overweight if it would take more memory than `most_weight`. It costs what the commit changes."""
    entry = EntryContent(snapshot.protocol, snapshot.metadata, most_weight)
    for action in actions:
        entry.take(action)
    known, done = snapshot.files, entry.done
    gone = {
        file.path
        for file in entry.removed
        if (before := known.get(file.path)) is not None and before.deletion_vector == file.deletion_vector
    }
    files = known.changed(entry.added, gone) if entry.added or gone else known
    removed, held = with_removed(snapshot.removed, entry.removed, files)
    weight = snapshot.weight + entry.weight + held
    weight -= sum(known[path].weight for path in gone.union(entry.added) if path in known)
    weight -= sum(snapshot.transactions[app_id].weight for app_id in done if app_id in snapshot.transactions)
    if weight > most_weight:
        raise Overweight
    transactions = snapshot.transactions.changed(done) if done else snapshot.transactions
    return Snapshot(
        version, entry.protocol, entry.metadata, files, transactions, removed, weight, damaged=snapshot.damaged
    )


def _folded(store: Store, snapshot: Snapshot, body: bytes, version: int) -> Snapshot:
    def read() -> Snapshot:
        return fold(snapshot, actions_of(body), version, store.bounds.snapshot_bytes)

    return _readable(store, version, commit_name(version), read)


def _readable(store: Store, version: int, name: str, read: Callable[[], Read]) -> Read:
    """What is read, or what is wrong with the file of that name. A failure keeps no frames: they hold what was read."""
    try:
        return read()
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
