"""Tells when imports begin to wait for a sink that fails, for the data plane or for keys: once for each table and cause, and
then ever more rarely while that lasts.

The announcements are ops, so that everyone sees them in the order of the log."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from millrace.api.documents.waiting import PlatformOutlook, WaitDocument, WaitReasons
from millrace.model.imports import PROCESSING, PUBLISHING, STOPPING, Import
from millrace.model.ops import Op
from millrace.model.ops.imports import NoteImport
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from millrace.store.records import to_import

WAIT_LOOK_SECONDS = 5.0
# An import that is quiet for a shorter time is not looked at.
QUIET_SECONDS = 10.0
MOST_LOOKED_AT = 200
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 600.0, 21_600.0
TOLD = ("sink", "data_plane", "key")
# Tenant, table, kind, sink.
Cause = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class _Telling:
    """When the cause may be told again, and how long the pause behind that is."""

    due: float
    pause: float


class WaitWatch:
    def __init__(
        self,
        store: ControlStore,
        outlook: PlatformOutlook,
        append: Callable[[Op[Any]], Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._outlook = outlook
        self._append = append
        self._clock = clock
        self._told: dict[Cause, _Telling] = {}

    def look(self) -> None:
        """The work is bounded: only the imports that have been quiet are looked at, the oldest of each tenant first."""
        causes = self._causes()
        now = self._clock()
        for cause, waiting in causes.items():
            telling = self._told.get(cause)
            if telling is not None and now < telling.due:
                continue
            pause = FIRST_PAUSE_SECONDS if telling is None else min(telling.pause * 2, LONGEST_PAUSE_SECONDS)
            self._told[cause] = _Telling(now + pause, pause)
            imp, document = waiting[0]
            data = {"waiting_for": document, "imports": len(waiting)}
            self._append(NoteImport(imp.tenant, imp.id, what="waiting", data=data))
        # A cause that went away and comes again soon is still the same trouble.
        self._told = {cause: told for cause, told in self._told.items() if cause in causes or now < told.due}

    def _causes(self) -> dict[Cause, list[tuple[Import, WaitDocument]]]:
        """What quiet imports wait for, each with the imports that wait for it."""
        quiet = t.imports.c.touched_us < time.time_ns() // 1000 - int(QUIET_SECONDS * 1e6)
        # Tenants take turns, so that many imports of one do not hide those of another.
        turn = func.row_number().over(partition_by=t.imports.c.tenant, order_by=t.imports.c.id)
        wanted = select(t.imports).where(t.imports.c.state.in_((PROCESSING, PUBLISHING, STOPPING)), quiet)
        found: dict[Cause, list[tuple[Import, WaitDocument]]] = {}
        with self._store.read() as connection:
            rows = list(connection.execute(wanted.order_by(turn, t.imports.c.id).limit(MOST_LOOKED_AT)))
            reasons = WaitReasons(connection, self._outlook)
            for row in rows:
                imp = to_import(row._mapping)
                document = reasons.of(imp, row.touched_us, None)
                if document is not None and document["kind"] in TOLD:
                    cause = imp.tenant, imp.table, document["kind"], document.get("sink", "")
                    found.setdefault(cause, []).append((imp, document))
        return found
