"""Looks at the queues of deliveries once a second. Announces when a sink stops taking rows, takes them again, has caught up
or is drained, and refuses imports into tables whose sinks keep more waiting than their tenant may have.

The announcements are ops, so that everyone sees them in the order of the table's log."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from millrace.exchange.places import Places
from millrace.exchange.queues import Queues
from millrace.model.limits import over_limit
from millrace.model.ops import Op
from millrace.model.ops.tables import NoteSink, WaiveSink
from millrace.model.queues import QueueKey, QueueRecord

# Longer than a group of chunks can be between its judgement and the queue.
SETTLE_SECONDS = 5.0
GIVE_UP_AGAIN_US = 60_000_000
# Somebody has to mend the sink: whoever waits for that has patience.
MENDING_SECONDS = 300.0
News = tuple[str, dict[str, Any]]
# Of a tenant: how many bytes may wait.
Limit = Callable[[str], int]
# Of a tenant, a table and a sink: whether some import still waits for it.
IsAwaited = Callable[[str, str, str], bool]
# Of a tenant and a table: whether the table was dropped for good.
IsPurged = Callable[[str, str], bool]


@dataclass(frozen=True, slots=True)
class ParkedTable:
    """A table that the platform itself cannot write at the moment; `sink` says whether its rows or its rejected rows."""

    tenant: str
    table: str
    sink: str
    since: float
    reason: str


class SinkWatch:
    def __init__(
        self,
        places: Places,
        queues: Queues,
        limit: Limit,
        is_awaited: IsAwaited,
        append: Callable[[Op[Any]], Any],
        is_purged: IsPurged = lambda *_: False,
        on_parked: Callable[[QueueRecord], None] = lambda _: None,
    ) -> None:
        self._places = places
        self._queues = queues
        self._limit = limit
        self._is_awaited = is_awaited
        self._is_purged = is_purged
        self._append = append
        self._on_parked = on_parked
        self._full: dict[tuple[str, str], tuple[int, int]] = {}
        self._seen: dict[QueueKey, QueueRecord] = {}
        # The bytes that wait for targets that take nothing.
        self._sizes: dict[QueueKey, int] = {}

    def refuse_if_full(self, tenant: str, table: str) -> None:
        if (tenant, table) in self._full:
            used, limit = self._full[tenant, table]
            raise over_limit(
                tenant, "parked_bytes", f"bytes that wait for sinks that take nothing, such as one of {table}", limit,
                used=used, retry_seconds=MENDING_SECONDS,
                remedy="Mend the sink (`millrace sink list`), or give up what waits for it (`millrace sink waive`).",
            )  # fmt: skip

    def parked_tables(self) -> list[ParkedTable]:
        """As of the last look."""
        own = [record for key, record in sorted(self._seen.items()) if key.is_own]
        return [
            ParkedTable(*record.key[1:], since=record.state.parked_since, reason=record.state.reason or "")
            for record in own
            if record.state.parked_since is not None
        ]

    def look(self) -> None:
        for record in (records := self._queues.all(self._seen)):
            if record is not self._seen.get(record.key):
                self._announce(record)
                self._sizes.pop(record.key, None)
                if record.state.parked_since is not None:
                    self._sizes[record.key] = self._queues.backlog(record.key).size
            if record.member is not None and not record.member.is_active:
                self._forget_if_drained(record)
            if record.key.is_own and record.state.parked_since is not None:
                self._give_up_if_purged(record)
        self._seen = {record.key: record for record in records}
        self._sizes = {key: size for key, size in self._sizes.items() if key in self._seen}
        self._full = self._refused()

    def _refused(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Tables that take no more, with what waits for sinks of their tenant and what may."""
        sizes: Counter[str] = Counter()
        for key, size in self._sizes.items():
            sizes[key.tenant] += size
        limits = {tenant: self._limit(tenant) for tenant in sizes}
        return {
            (key.tenant, key.table): (sizes[key.tenant], limits[key.tenant])
            for key in self._sizes
            if sizes[key.tenant] >= limits[key.tenant]
        }

    def _announce(self, record: QueueRecord) -> None:
        standing = _standing(record)
        if record.announced != standing:
            for what, data in _news(record.announced, standing):
                self._note(record.key, what, data)
                if what == "parked":
                    self._on_parked(record)
            self._queues.announce(record.key, standing)

    def _note(self, key: QueueKey, what: str, data: dict[str, Any]) -> None:
        self._append(NoteSink(key.tenant, key.table, sink=key.target, what=what, data=data)).result()

    def _give_up_if_purged(self, record: QueueRecord) -> None:
        """Nobody can mend a table that does not exist any more, or ask for it to be given up."""
        key, now_us = record.key, time.time_ns() // 1000
        is_new = record.waiver.below < now_us - GIVE_UP_AGAIN_US
        if is_new and self._is_purged(key.tenant, key.table):
            self._append(WaiveSink(key.tenant, key.table, sink=key.target, is_draining=True)).result()
            self._queues.waive(key, now_us)
            self._queues.ask_to_resume(key)

    def _forget_if_drained(self, record: QueueRecord) -> None:
        key, is_quiet = record.key, time.time() - record.changed_us / 1e6 > SETTLE_SECONDS
        if (
            is_quiet
            and not self._queues.backlog(key).waiting
            and not self._is_awaited(key.tenant, key.table, key.target)
        ):
            self._note(key, "drained", {})
            if self._queues.forget(record):
                self._places.pins(key).drop(SETTLE_SECONDS)


def _standing(record: QueueRecord) -> dict[str, Any]:
    """What is worth telling when it changes."""
    backfill = None if record.member is None or record.member.backfill is None else asdict(record.member.backfill)
    return {
        "parked_since": record.state.parked_since,
        "reason": record.state.reason,
        "backfill": backfill and {name: backfill[name] for name in ("state", "source", "rows", "reason")},
    }


def _news(announced: dict[str, Any], standing: dict[str, Any]) -> list[News]:
    news: list[News] = []
    since, before = standing["parked_since"], announced.get("parked_since")
    if since is not None and before is None:
        news.append(("parked", {"reason": standing["reason"], "since": since}))
    elif since is None and before is not None:
        news.append(("resumed", {"parked_since": before}))
    backfill = standing["backfill"]
    if backfill is not None and backfill != announced.get("backfill"):
        news.append(("backfill", {**backfill}))
    return news
