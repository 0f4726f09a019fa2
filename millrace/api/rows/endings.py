"""Tells who waits for an append when it has ended, with its counts.

The counts of all that have just ended are read from the store at once, so that many small appends cost few reads."""

import asyncio
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from millrace.model.imports import Counts
from millrace.observe import observe
from millrace.store import tables as t
from millrace.store.engine import ControlStore

PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Ended:
    state: str
    counts: Counts
    error: dict[str, str] | None


class Endings:
    """Used from one event loop."""

    def __init__(self, store: ControlStore) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._expected: dict[str, set[asyncio.Future[Ended]]] = {}
        self._early: dict[str, Ended] = {}
        self._over: set[str] = set()
        self._reading: asyncio.Task[None] | None = None

    def expect(self, import_id: str) -> None:
        """Call it before the append is submitted, so that its end is not missed."""
        self._expected[import_id] = set()

    def ended(self, import_id: str) -> "asyncio.Future[Ended]":
        """Done when the expected append has ended. Cancel it to stop waiting."""
        hearing: asyncio.Future[Ended] = self._loop.create_future()
        if import_id in self._early:
            hearing.set_result(self._early[import_id])
            return hearing
        self._expected[import_id].add(hearing)
        hearing.add_done_callback(lambda done: self._stop_hearing(import_id, done))
        return hearing

    def forget_unheard(self, import_id: str) -> None:
        """Forgets the append, unless somebody waits for its end."""
        self._early.pop(import_id, None)
        if not self._expected.get(import_id):
            self._expected.pop(import_id, None)

    def _stop_hearing(self, import_id: str, hearing: "asyncio.Future[Ended]") -> None:
        self._expected.get(import_id, set()).discard(hearing)
        self.forget_unheard(import_id)

    def heard(self, over: list[str]) -> None:
        """These imports have ended."""
        self._over.update(import_id for import_id in over if import_id in self._expected)
        if self._over and self._reading is None:
            self._reading = self._loop.create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._over:
                over = set(self._over)
                try:
                    found = await asyncio.to_thread(self._read, over)
                except SQLAlchemyError as error:
                    observe("trouble", kind="endings", error=f"{type(error).__name__}: {error}"[:1000])
                    await asyncio.sleep(PAUSE_SECONDS)
                    continue
                self._over -= over
                for import_id, ended in found.items():
                    self._tell_one(import_id, ended)
        finally:
            self._reading = None

    def _tell_one(self, import_id: str, ended: Ended) -> None:
        hearers = self._expected.pop(import_id, None)
        if hearers is not None and not hearers:
            self._early[import_id] = ended
        for hearing in hearers or ():
            if not hearing.done():
                hearing.set_result(ended)

    def _read(self, import_ids: set[str]) -> dict[str, Ended]:
        wanted = select(t.imports.c.id, t.imports.c.state, t.imports.c.counts, t.imports.c.error)
        rows = self._store.rows(wanted.where(t.imports.c.id.in_(import_ids)))
        return {row.id: Ended(row.state, Counts(**row.counts), row.error) for row in rows}
