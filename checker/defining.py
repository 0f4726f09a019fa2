"""Changes of tables at a steady pace: other shapes, and now and then a truncation."""

import json
import time

import numpy as np

from checker.caller import Caller
from checker.capabilities import TRUNCATE
from checker.history import FAIL, OK
from checker.loading import CallerFor, Scene
from checker.tables import TRUNCATED, Table, next_shape

DECLARING_SECONDS = 60.0
APPLIED = 200
TRUNCATE_EVERY = 2


class Definer:
    def __init__(self, scene: Scene, seed: int, caller_for: CallerFor, pause: float) -> None:
        self._scene, self._caller_for, self._pause = scene, caller_for, pause
        self._rng = np.random.default_rng(seed)
        self._callers: dict[str, Caller] = {}

    def run(self) -> None:
        changes = 0
        while not self._scene.board.stop.wait(self._pause):
            changes += 1
            self.change(self._scene.tables[int(self._rng.integers(len(self._scene.tables)))])
            if TRUNCATE in self._scene.capabilities and changes % TRUNCATE_EVERY == 0:
                self._truncate(next(table for table in self._scene.tables if table.name == TRUNCATED))

    def declare_all(self) -> None:
        for table in self._scene.tables:
            table.wanted = table.known
            deadline = time.monotonic() + DECLARING_SECONDS
            while table.wanted is not None:
                self.change(table)
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{table.tenant}/{table.name} cannot be declared")

    def _caller(self, tenant: str) -> Caller:
        if tenant not in self._callers:
            self._callers[tenant] = self._caller_for(tenant)
        return self._callers[tenant]

    def change(self, table: Table) -> None:
        """Asks for another shape; one whose outcome is unknown is asked for again the next time."""
        shape = next_shape(table, self._rng, self._scene.refused)
        body = json.dumps(table.document(shape)).encode()
        table.wanted = shape
        headers = {"Content-Type": "application/json"}
        caller = self._caller(table.tenant)
        answer = caller.ask("define", "PUT", table.path, table=table.name, body=body, headers=headers)
        if answer.kind == OK and answer.status == APPLIED:
            table.known, table.wanted = shape, None
        elif answer.kind == FAIL and answer.status:
            table.wanted = None
            self._scene.refused.add("widen" if shape.is_wide and not table.known.is_wide else "default")

    def _truncate(self, table: Table) -> None:
        self._caller(table.tenant).ask("truncate", "POST", f"{table.path}/truncate", table=table.name)
