"""Looks at what is parked, once a second: tells when a sink stops taking rows, takes them again, has caught up or is drained,
and refuses imports into tables whose sinks keep more waiting than their tenant may have.

What it tells are ops, so that everyone hears it in the order of the table's log."""

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from millrace.atomic import replace_file
from millrace.deliver.queue import Queue, parked_bytes
from millrace.deliver.roster import Member, read_member
from millrace.exchange.places import Places
from millrace.model.errors import Clash
from millrace.model.ops import Op
from millrace.model.ops.tables import NoteSink

TOLD_FILE = "told.json"
# Longer than a group of chunks can be between its judgement and the queue.
SETTLE_SECONDS = 5.0
News = tuple[str, dict[str, Any]]
# Of a tenant: how many bytes may wait.
Limit = Callable[[str], int]
# Of a tenant, a table and a sink: whether some import still waits for it.
IsAwaited = Callable[[str, str, str], bool]


class SinkWatch:
    def __init__(self, places: Places, limit: Limit, is_awaited: IsAwaited, append: Callable[[Op[Any]], Any]) -> None:
        self._places = places
        self._limit = limit
        self._is_awaited = is_awaited
        self._append = append
        self._full: dict[tuple[str, str], str] = {}
        self._seen: dict[Path, _Seen] = {}

    def refuse_if_full(self, tenant: str, table: str) -> None:
        message = self._full.get((tenant, table))
        if message is not None:
            raise Clash(
                message,
                remedy="Mend the sink (`millrace sink list`), or give up what waits for it (`millrace sink waive`).",
                code="parked_quota",
            )

    def look(self) -> None:
        held: dict[str, int] = {}
        blocked: list[tuple[str, str, str]] = []
        seen: dict[Path, _Seen] = {}
        for folder in self._places.parked.glob("*/*/*/*"):
            _, tenant, table, sink = folder.parts[-4:]
            # A queue may be forgotten while it is looked at.
            with suppress(FileNotFoundError):
                found = seen[folder] = self._look_at(folder)
                held[tenant] = held.get(tenant, 0) + found.waiting_bytes
                if found.is_parked:
                    blocked.append((tenant, table, sink))
        self._seen = seen
        self._full = self._refused(held, blocked)

    def _look_at(self, folder: Path) -> "_Seen":
        changed = folder.stat().st_mtime_ns
        before = self._seen.get(folder)
        if before is not None and before.changed == changed and not before.is_leaving:
            return before
        state, member = Queue(folder).state, read_member(folder)
        self._tell(folder, _standing(state, member))
        is_leaving = member is not None and not member.is_active
        if is_leaving:
            self._forget_if_drained(folder)
        is_parked = state.parked_since is not None
        return _Seen(changed, is_parked, parked_bytes(folder) if is_parked else 0, is_leaving)

    def _refused(self, held: dict[str, int], blocked: list[tuple[str, str, str]]) -> dict[tuple[str, str], str]:
        limits = {tenant: self._limit(tenant) for tenant, _, _ in blocked}
        return {
            (
                tenant,
                table,
            ): f"{held[tenant]:,} bytes wait for sinks of {tenant} that take nothing, {sink!r} of {table} "
            f"among them; {limits[tenant]:,} may."
            for tenant, table, sink in blocked
            if held[tenant] >= limits[tenant]
        }

    def _tell(self, folder: Path, standing: dict[str, Any]) -> None:
        told = _read(folder / TOLD_FILE)
        if told == standing:
            return
        for what, data in _news(told, standing):
            self._note(folder, what, data)
        _write(folder / TOLD_FILE, standing)

    def _note(self, folder: Path, what: str, data: dict[str, Any]) -> None:
        _, tenant, table, sink = folder.parts[-4:]
        self._append(NoteSink(tenant, table, sink=sink, what=what, data=data)).result()

    def _forget_if_drained(self, folder: Path) -> None:
        _, tenant, table, sink = folder.parts[-4:]
        quiet = time.time() - folder.stat().st_mtime > SETTLE_SECONDS
        if quiet and not Queue(folder).holds_anything and not self._is_awaited(tenant, table, sink):
            self._note(folder, "drained", {})
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A queue as it was when its folder was last changed."""

    changed: int
    is_parked: bool
    waiting_bytes: int
    is_leaving: bool


def _standing(state: Any, member: Member | None) -> dict[str, Any]:
    """What is worth telling when it changes."""
    backfill = None if member is None or member.backfill is None else asdict(member.backfill)
    return {
        "parked_since": state.parked_since,
        "reason": state.reason,
        "backfill": backfill and {name: backfill[name] for name in ("state", "source", "rows", "reason")},
    }


def _news(told: dict[str, Any], standing: dict[str, Any]) -> list[News]:
    news: list[News] = []
    since, before = standing["parked_since"], told.get("parked_since")
    if since is not None and before is None:
        news.append(("parked", {"reason": standing["reason"], "since": since}))
    elif since is None and before is not None:
        news.append(("resumed", {"parked_since": before}))
    backfill = standing["backfill"]
    if backfill is not None and backfill != told.get("backfill"):
        news.append(("backfill", {**backfill}))
    return news


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = orjson.loads(path.read_bytes())
        return found
    except (FileNotFoundError, orjson.JSONDecodeError):
        return {}


def _write(path: Path, standing: dict[str, Any]) -> None:
    replace_file(path, orjson.dumps(standing))
