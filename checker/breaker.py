"""Tables that are damaged while the load runs, and mended later: who else waits for them?"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

from checker.board import Board, Lines
from checker.breaking import WAYS, Repair
from checker.platform import Platform
from checker.sinks import is_there
from checker.tables import Table

FAULT_ID = "F60"
NOTICE_SECONDS = 90.0
LEAST_SECONDS = 10.0
HEAL_SECONDS = 90.0
CALM_SECONDS = 25.0
LOOK_SECONDS = 0.5
RESUME_SECONDS = 60.0


class Breaker:
    """Damages one table at a time. No process is killed or paused in the last part of the time, so that a wait in that part
    has no other reason than the damage."""

    def __init__(self, platform: Platform, tables: Sequence[Table], board: Board, lines: Lines, seed: int) -> None:
        self._platform, self._board, self._lines = platform, board, lines
        # Requests to an exclusive table wait for their turn, so all clients would soon wait for a broken one.
        self._tables = [table for table in tables if not table.is_exclusive]
        self._rng = np.random.default_rng(seed)
        headers = {"Authorization": f"Bearer {platform.token}"}
        self._http = httpx2.Client(base_url=platform.url, headers=headers, timeout=10)

    def run(self, times: int, seconds: float) -> None:
        """Spreads so many damages over the time; every way comes before one comes again."""
        begun, step = time.monotonic(), seconds / times
        ways = [way for _ in range(0, times, len(WAYS)) for way in self._rng.permutation(list(WAYS))]
        for place in range(times):
            early = begun + step * (place + 0.15) - time.monotonic()
            if self._board.stop.wait(max(0.0, early)):
                return
            self._break(str(ways[place]))

    def _break(self, way: str) -> None:
        there = [table for table in self._tables if is_there(self._location(table))]
        if not there:
            return
        table = there[int(self._rng.integers(len(there)))]
        with self._board.hand(table.place):
            self._break_table(table, way)

    def _break_table(self, table: Table, way: str) -> None:
        said: dict[str, Any] = {"fault": FAULT_ID, "target": f"{table.tenant}/{table.name}", "signal": "DAMAGE"}
        self._board.broken.add(table.place)
        said |= {"way": way, "t_wall": time.time(), "t_mono": time.monotonic()}
        repair = WAYS[way](self._location(table))
        try:
            said["noticed"] = self._is_noticed(table)
            if said["noticed"]:
                with self._board.peace:
                    said |= self._calm()
                    said |= self._mend(table, repair)
            else:
                said |= self._mend(table, repair)
        except BaseException:
            if table.place in self._board.broken:
                repair()
                self._board.broken.discard(table.place)
            raise
        self._lines.add(said)

    def _location(self, table: Table) -> Path:
        return self._platform.home / "lake" / table.tenant / table.name

    def _is_noticed(self, table: Table) -> bool:
        """Waits until health names the table: rows for it have arrived and were parked."""
        begun = time.monotonic()
        while time.monotonic() - begun < NOTICE_SECONDS:
            if self._board.stop.wait(LOOK_SECONDS):
                return False
            named = f"{table.tenant}/{table.name}" in self._in_trouble()
            if named and time.monotonic() - begun >= LEAST_SECONDS:
                return True
        return False

    def _in_trouble(self) -> set[str]:
        try:
            return {str(one["table"]) for one in self._http.get("/v1/health").json().get("tables", ())}
        except (httpx2.HTTPError, ValueError):
            return set()

    def _calm(self) -> dict[str, float]:
        """Some time without other faults, once the platform has recovered from earlier ones."""
        deadline = time.monotonic() + HEAL_SECONDS
        while not self._platform.is_healthy() and time.monotonic() < deadline:
            if self._board.stop.wait(LOOK_SECONDS):
                return {}
        calm = time.time()
        return {} if self._board.stop.wait(CALM_SECONDS) else {"calm_wall": calm}

    def _mend(self, table: Table, repair: Repair) -> dict[str, float]:
        mended = {"mended_wall": time.time()}
        repair()
        self._board.broken.discard(table.place)
        healed = {"healed": time.monotonic()}
        self._resume(table)
        return mended | healed

    def _resume(self, table: Table) -> None:
        """Without it the table is tried again after a pause of up to a minute."""
        deadline = time.monotonic() + RESUME_SECONDS
        while time.monotonic() < deadline:
            try:
                answer = self._http.post(f"{table.path}/sinks/delta/resume")
                if answer.status_code < httpx2.codes.INTERNAL_SERVER_ERROR:
                    return
            except httpx2.HTTPError:
                pass
            time.sleep(LOOK_SECONDS)
