"""Reads a query's checkpoint: how far the query has durably come, and when each of its batches was planned. Spark writes it
without fsync: after a power cut its newest files may be empty."""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from millrace.atomic import sync_file, sync_folder
from millrace.exchange.stops import StopList
from millrace.model.facts import Checkpointed

Offsets = dict[str, dict[str, int]]

# The batch's metadata, and a source.
OFFSET_LINES = 2
_VERSION, _NO_OFFSET = re.compile(rb"v\d+"), b"-"


class CheckpointWatch:
    """Notices when a query commits a batch."""

    def __init__(self, query: str, folder: Path, durable: bool = False) -> None:
        self._query = query
        self._folder = folder
        self._durable = durable
        self._commits = folder / "commits"
        self._seen = -1

    def look(self, *, again: bool = False) -> Checkpointed | None:
        """The query's position. None if it has not moved since the last look, unless it is asked for `again`."""
        newest = _newest(self._commits)
        if newest is None or (newest == self._seen and not again):
            return None
        ends = _offsets(self._folder / "offsets" / str(newest))
        if ends is None:
            return None
        if self._durable:
            # Before anybody builds on it: what the query has passed is deleted from the log.
            _secure(self._folder, newest)
        self._seen = newest
        starts = _offsets(self._folder / "offsets" / str(newest - 1)) or {}
        return Checkpointed(self._query, ends, starts)


def mend_checkpoint(folder: Path) -> list[str]:
    """Deletes files that a power cut left empty or cut, and those behind them, so that the query starts at the last batch
    whose files are whole. Returns their names. Batches that it repeats change nothing."""
    offsets, commits = _whole_batches(folder / "offsets", OFFSET_LINES), _whole_batches(folder / "commits", 0)
    if all((*offsets.values(), *commits.values())):
        return []
    whole = [
        batch
        for batch, is_whole in commits.items()
        if is_whole and offsets.get(batch) and (batch == 0 or offsets.get(batch - 1, False))
    ]
    last = max(whole, default=-1)
    planned = last + 1 if offsets.get(last + 1) else last
    gone = [folder / "offsets" / str(batch) for batch in offsets if batch > planned]
    gone += [folder / "commits" / str(batch) for batch in commits if batch > last]
    for path in gone:
        # Spark keeps a checksum beside each of them.
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    return [str(path.relative_to(folder)) for path in gone]


def _whole_batches(folder: Path, least_lines: int) -> dict[int, bool]:
    """For each batch that has a file: whether it is whole. Its first line is a version, each other one JSON."""
    try:
        names = [name for name in os.listdir(folder) if name.isdigit()]
    except FileNotFoundError:
        return {}
    return {int(name): _is_whole((folder / name).read_bytes(), least_lines) for name in names}


def _is_whole(content: bytes, least_lines: int) -> bool:
    version, *lines = content.splitlines() or [b""]
    if not _VERSION.fullmatch(version) or len(lines) < least_lines:
        return False
    try:
        return all(orjson.loads(line) is not None for line in lines if line != _NO_OFFSET)
    except orjson.JSONDecodeError:
        return False


def _secure(folder: Path, batch: int) -> None:
    for kind, batches in (("offsets", (batch - 1, batch)), ("commits", (batch,))):
        for number in batches:
            with suppress(FileNotFoundError):
                sync_file(folder / kind / str(number))
        sync_folder(folder / kind)


def _newest(folder: Path) -> int | None:
    try:
        return max((int(name) for name in os.listdir(folder) if name.isdigit()), default=None)
    except FileNotFoundError:
        return None


def _offsets(path: Path) -> Offsets | None:
    """Spark's offset file: a version, the batch's metadata, then one line per source."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return None
    offsets: dict[str, Any] = orjson.loads(lines[2])
    return offsets


class Stops:
    """Which imports a batch passes over: those that were stopped before the batch was planned.

    Both moments are durable before any task of the batch runs. So a batch that runs again passes over the same imports: a
    chunk that was judged once is not ignored the next time, when part of its result may already be published."""

    def __init__(self, stops: StopList, checkpoint: Path, batch: str) -> None:
        self._stops = stops
        self._offsets = checkpoint / "offsets" / batch
        self._planned_ms: int | None = None

    def include(self, import_id: str) -> bool:
        stopped_ms = self._stops.stopped_ms(import_id)
        if stopped_ms is None:
            return False
        if self._planned_ms is None:
            self._planned_ms = int(orjson.loads(self._offsets.read_text().splitlines()[1])["batchTimestampMs"])
        return stopped_ms <= self._planned_ms
