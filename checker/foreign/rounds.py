"""Other engines write random tables while imports run and processes are killed."""

import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl

from checker.board import Board, Lines
from checker.foreign.operations import Operation, Rows, choose, is_ours
from checker.sinks import is_there
from checker.tables import TRUNCATED, Table

DONE, REFUSED = "done", "refused"
MOST_WORDS = 300
READ_TRIES = 5


class ForeignWriter(Protocol):
    name: str

    def do(self, location: Path, operation: Operation) -> None: ...
    def close(self) -> None: ...


class Rounds:
    """One operation after another. Nobody else writes the keys of the other engines, so a reading shows what an operation
    has done."""

    def __init__(
        self,
        lake: Path,
        tables: Sequence[Table],
        writers: Sequence[ForeignWriter],
        board: Board,
        lines: Lines,
        seed: int,
    ) -> None:
        self._lake, self._tables, self._writers = lake, tables, writers
        self._board, self._lines = board, lines
        self._rng = np.random.default_rng(seed)
        self._rows: dict[tuple[str, str], Rows] = defaultdict(dict)

    def run(self, pause: float) -> None:
        number = 0
        try:
            while not self._board.stop.wait(pause):
                number += 1
                self._next(number)
        finally:
            for writer in self._writers:
                writer.close()

    def _next(self, number: int) -> None:
        there = [table for table in self._tables if is_there(self._lake.joinpath(*table.place))]
        if not there:
            return
        table = there[int(self._rng.integers(len(there)))]
        writer = self._writers[int(self._rng.integers(len(self._writers)))]
        hand = self._board.hand(table.place)
        # A table that is broken now is mended by putting bytes back: nothing may be written on top of them.
        if not hand.acquire(blocking=False):
            return
        try:
            self._do(table, writer, number)
        finally:
            hand.release()

    def _do(self, table: Table, writer: ForeignWriter, number: int) -> None:
        location, before = self._lake.joinpath(*table.place), self._rows[table.place]
        # A truncation takes all rows, and rows without a key cannot be told apart.
        operation = choose(self._rng, number, before, of_rows=table.keyed and table.name != TRUNCATED)
        said: dict[str, Any] = {
            "target": f"{table.tenant}/{table.name}",
            "engine": writer.name,
            "operation": operation.kind,
        }
        said |= {"before": before, "after": operation.after(before)}
        said |= {"t_wall": time.time(), "t_mono": time.monotonic()}
        try:
            writer.do(location, operation)
            said["outcome"] = DONE
        except Exception as error:
            said |= {"outcome": REFUSED, "words": " ".join(f"{type(error).__name__}: {error}".split())[:MOST_WORDS]}
        try:
            found = ours_in(location)
            self._rows[table.place] = found
            said["found"] = found
        except Exception as error:
            said["unreadable"] = f"{type(error).__name__}: {error}"[:MOST_WORDS]
        self._lines.add({**said, "done_mono": time.monotonic()})


def ours_in(location: Path) -> Rows:
    """The other engines' rows in a table now. A reader may meet a file that was just replaced, and tries again."""
    for left in reversed(range(READ_TRIES)):
        try:
            frame = pl.scan_delta(str(location)).select("k", "w").filter(is_ours()).collect()
            return dict(zip(frame["k"].to_list(), frame["w"].to_list(), strict=True))
        except Exception:
            if not left:
                raise
            time.sleep(0.2)
    return {}
