"""Lets a target that came to a table with a past catch up: step by step, between deliveries, and again after a crash."""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from millrace.deliver.backfill import copy_table, is_kept_in_delta, put_logged, ready_snapshot
from millrace.deliver.members import Members
from millrace.deliver.queue import Queue
from millrace.deliver.roster import (
    DONE,
    FROM_DELTA,
    FROM_LOG,
    GIVEN_UP,
    IMPOSSIBLE,
    UNDER_WAY,
    WANTED,
    Backfill,
    Member,
)
from millrace.exchange.places import Places
from millrace.model.table import Definition
from millrace.observe import log
from millrace.sink.contract import StagedGroup

NOWHERE = "No other sink keeps the table's rows where they can be read; declare delta beside it, or import them again."


class Backfiller:
    def __init__(
        self,
        places: Places,
        members: Members,
        definitions: Callable[[str], Definition],
        log: Callable[[], Iterable[StagedGroup]] = tuple,
    ) -> None:
        """`log` is what is retained of it, asked for when somebody has to catch up."""
        self._places = places
        self._log = log
        self._members = members
        self._definitions = definitions
        self._looked: set[object] = set()

    def note_shown(self, folder: Path, import_id: str, definition: Definition) -> None:
        """An import that was held when the target came is shown now: its rows went by before."""
        member = self._members.at(folder)
        if member is not None and member.takes_late(definition):
            self._members.change(folder, lambda known: known.wanting(import_id))

    def step(self, queue: Queue) -> bool:
        """1. Wait until the source holds all that the target missed. 2. Link it into the queue. 3. See it delivered.

        True when nothing is left to do."""
        member = self._members.at(queue.folder)
        if member is None or member.backfill is None:
            return True
        if member.backfill.state == WANTED:
            self._begin(queue, member, member.backfill)
        elif member.backfill.state == UNDER_WAY and not any(item.is_backfill for item in queue.items()):
            is_given_up = queue.waived_below > (member.backfill.began or 0.0) * 1e6
            self._note(queue.folder, member.backfill, state=GIVEN_UP if is_given_up else DONE, ended=time.time())
        left = self._members.at(queue.folder)
        return left is None or left.backfill is None or left.backfill.ended is not None

    def _begin(self, queue: Queue, member: Member, wanted: Backfill) -> None:
        _, tenant, table, _ = queue.folder.parts[-4:]
        now, root = time.time(), self._places.table(tenant, table)
        logged = self._from_log(queue, member)
        if logged is not None:
            self._note(queue.folder, wanted, state=UNDER_WAY, source=FROM_LOG, rows=logged, began=now)
        elif not is_kept_in_delta(self._definitions(member.definition)):
            self._note(queue.folder, wanted, state=IMPOSSIBLE, reason=NOWHERE, began=now, ended=now)
        else:
            # A file that is gone was rewritten after the snapshot was taken: the next look finds what it became.
            with suppress(FileNotFoundError):
                snapshot = ready_snapshot(root, member, self._definitions)
                if snapshot is not None:
                    rows = copy_table(root, snapshot, queue, self._definitions)
                    self._note(queue.folder, wanted, state=UNDER_WAY, source=FROM_DELTA, rows=rows, began=now)

    def _from_log(self, queue: Queue, member: Member) -> int | None:
        """Once for each wish: what was not retained when it came will not be later."""
        wish = queue.folder, member.added, member.backfill
        if wish in self._looked:
            return None
        self._looked.add(wish)
        try:
            return put_logged(self._log(), self._places, queue, member, self._definitions)
        except FileNotFoundError:
            return None

    def _note(self, folder: Path, seen: Backfill, **news: object) -> None:
        """Unless more was wanted meanwhile: then it begins again."""

        def noted(member: Member) -> Member:
            if member.backfill != seen:
                return member
            return replace(member, backfill=replace(seen, **news))  # type: ignore[arg-type]

        self._members.change(folder, noted)
        log("sink_backfill", queue=str(folder), state=str(news.get("state")), source=str(news.get("source")))
