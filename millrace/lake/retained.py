"""Removed files that readers of older versions may still need: a commit's removes in, the files to name in checkpoints out.

Engines that vacuum a table keep what a checkpoint names as removed within the retention. A mark on a row removes a file and
adds it again with another deletion vector: then the file is named with its earlier vector, if that is a file too."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta

from millrace.lake.actions import AddFile, DeletionVector, Metadata, RemovedFile, now_ms
from millrace.lake.overlay import Overlay

# Delta's own default.
RETENTION = timedelta(days=7)
# The newest ones. It bounds memory and checkpoints, however fast commits follow each other.
MOST_REMOVED = 50_000
RETENTION_PROPERTY = "delta.deletedFileRetentionDuration"

RemovedFiles = Overlay[str, RemovedFile]

_INTERVAL = re.compile(r"(?:interval\s+)?(\d{1,9})\s+(second|minute|hour|day|week)s?", re.IGNORECASE)


def with_removed(
    known: RemovedFiles, removed: Iterable[RemovedFile], live: Mapping[str, AddFile]
) -> tuple[RemovedFiles, int]:
    """The removed files, and what the new ones take in memory. `live` are the table's files after the removal."""
    named: dict[str, RemovedFile] = {}
    for file in removed:
        key = _key(file, live, lambda key: named.get(key) or known.get(key))
        if key is not None:
            named[key] = file
    if not named:
        return known, 0
    held = sum(file.weight for file in named.values()) - sum(known[key].weight for key in named if key in known)
    following = known.changed(named)
    if len(following) > 2 * MOST_REMOVED:
        # Whoever only reads the table never drops them otherwise.
        kept = _newest(following)
        held -= sum(file.weight for key, file in following.items() if key not in kept)
        following = Overlay(kept)
    return following, held


def retained(known: RemovedFiles, live: Mapping[str, AddFile], metadata: Metadata) -> RemovedFiles:
    """Without files that are live again or whose retention is over."""
    oldest_ms = now_ms() - retention_of(metadata) // timedelta(milliseconds=1)
    kept = {key: file for key, file in known.items() if file.removed_ms >= oldest_ms and not _is_live(file, live)}
    return Overlay(_newest(kept) if len(kept) > MOST_REMOVED else kept)


def retention_of(metadata: Metadata) -> timedelta:
    match = _INTERVAL.fullmatch(metadata.configuration.get(RETENTION_PROPERTY, "").strip())
    return timedelta(**{f"{match[2].lower()}s": int(match[1])}) if match else RETENTION


def _key(file: RemovedFile, live: Mapping[str, AddFile], known: Callable[[str], RemovedFile | None]) -> str | None:
    """The path if the whole file is gone, so that it is found by its path. With its vector if only that is gone, or if the
    file had left before with another vector: a checkpoint names all that the log named. None if only an inline vector is
    gone."""
    vector = _vector_file(file.deletion_vector)
    if vector is None and file.path in live:
        return None
    with_vector = f"{file.path} {vector or ''}"
    if file.path in live or known(with_vector) is not None:
        return with_vector
    before = known(file.path)
    return file.path if before is None or _vector_file(before.deletion_vector) == vector else with_vector


def _is_live(file: RemovedFile, live: Mapping[str, AddFile]) -> bool:
    now = live.get(file.path)
    if now is None:
        return False
    vector = _vector_file(file.deletion_vector)
    return vector is None or vector == _vector_file(now.deletion_vector)


def _vector_file(vector: DeletionVector | None) -> str | None:
    return None if vector is None or vector.storage == "i" else f"{vector.storage}{vector.location}"


def _newest(kept: Mapping[str, RemovedFile]) -> dict[str, RemovedFile]:
    oldest_first: Sequence[tuple[str, RemovedFile]] = sorted(kept.items(), key=lambda pair: pair[1].removed_ms)
    return dict(oldest_first[-MOST_REMOVED:])
