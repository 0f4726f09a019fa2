"""Hears events as they are announced; each END makes the table be read at once, so that an END that lies is caught."""

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import polars as pl

from checker.board import Board, Lines
from checker.dump import SEEN_ROWS
from checker.sinks import is_there, read_places
from checker.tables import TENANTS
from checker.terminal import is_terminal

RETRY_SECONDS = 0.3
MOST_TRIES = 20
Place = tuple[str, str]


class Listener:
    """Follows the stream of events, from where it broke off if it breaks."""

    def __init__(self, url: str, token: str, heard: Lines, board: Board, readings: "Readings") -> None:
        self._http = httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30)
        self._heard, self._board, self._readings = heard, board, readings
        self.last = 0

    def follow(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                for number, event in self._events():
                    self.last = number
                    self._take(event)
                    if stopping.is_set():
                        return
            except httpx2.HTTPError:
                stopping.wait(RETRY_SECONDS)

    def _events(self) -> Iterator[tuple[int, dict[str, Any]]]:
        number = self.last
        with self._http.stream("GET", "/v1/events/stream", headers={"Last-Event-ID": str(self.last)}) as response:
            if response.status_code != httpx2.codes.OK:
                raise httpx2.HTTPError(f"status {response.status_code}")
            for line in response.iter_lines():
                if line.startswith("id:"):
                    number = int(line[3:])
                elif line.startswith("data:"):
                    yield number, json.loads(line[5:])

    def _take(self, event: dict[str, Any]) -> None:
        self._heard.add({"event": event, "t_wall": time.time(), "t_mono": time.monotonic()})
        if is_terminal(event):
            self._board.ended(event["subject"])
            tenant, _, table = event["data"]["table"].partition("/")
            if tenant in TENANTS:
                self._readings.want((tenant, table), event["subject"])


class Readings:
    """Reads the tables whose imports have just ended. Ends heard while a reading is under way share the next one. A table
    that is damaged now is read when it is mended."""

    def __init__(self, lake: Path, keyless: set[Place], folder: Path, board: Board) -> None:
        self._lake, self._keyless, self._folder, self._board = lake, keyless, folder, board
        (folder / "seen_rows").mkdir(parents=True, exist_ok=True)
        self._lines = Lines(folder / "snapshots.jsonl")
        self._wanted: dict[Place, list[str]] = defaultdict(list)
        self._changed = threading.Condition()
        self._number = 0
        self._tries: Counter[Place] = Counter()

    def want(self, place: Place, import_id: str) -> None:
        with self._changed:
            self._wanted[place].append(import_id)
            self._changed.notify()

    def read_wanted(self, stopping: threading.Event) -> None:
        """Until it is told to stop and nothing is wanted any more."""
        while True:
            with self._changed:
                place = next((each for each in self._wanted if each not in self._board.broken), None)
                if place is None:
                    if stopping.is_set() and not self._wanted:
                        return
                    self._changed.wait(0.2)
                    continue
                ended = self._wanted.pop(place)
            self._read(place, ended)

    def _read(self, place: Place, ended: list[str]) -> None:
        tenant, table = place
        number, self._number = self._number, self._number + 1
        said = {"snapshot": number, "tenant": tenant, "table": table, "ended": ended, "begun": time.monotonic()}
        try:
            seen = self._seen(place, ended)
        except Exception as error:
            # A table that cannot be read is a finding of its own; the ends that were heard are still to be compared.
            self._lines.add({**said, "error": f"{type(error).__name__}: {error}"[:500], "done": time.monotonic()})
            self._tries[place] += 1
            if self._tries[place] < MOST_TRIES:
                for import_id in ended:
                    self.want(place, import_id)
            return
        frame = seen.select(pl.lit(number, pl.Int64).alias("snapshot"), "k", "_version", "_import", "_row")
        frame.write_parquet(self._folder / "seen_rows" / f"{number:06d}.parquet")
        self._lines.add({**said, "done": time.monotonic()})

    def _seen(self, place: Place, ended: list[str]) -> pl.DataFrame:
        location = self._lake.joinpath(*place)
        if not is_there(location):
            return pl.DataFrame(schema=SEEN_ROWS)
        return read_places(location, ended if place in self._keyless else None)
