"""Reads a query's checkpoint: how far the query has durably come, and when each of its batches was planned."""

import os
from pathlib import Path
from typing import Any

import orjson

from millrace.exchange.stops import StopList
from millrace.model.facts import Checkpointed

Offsets = dict[str, dict[str, int]]


class CheckpointWatch:
    """Notices when a query commits a batch."""

    def __init__(self, query: str, folder: Path) -> None:
        self._query = query
        self._folder = folder
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
        self._seen = newest
        starts = _offsets(self._folder / "offsets" / str(newest - 1)) or {}
        return Checkpointed(self._query, ends, starts)


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
