"""The world: logs, a store, a server, a rival, queries, sinks, clients and a clock. Things happen in it one at a time."""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from millrace.model.imports import ADMITTED, PROCESSING, REPLAY, Import
from millrace.model.ops import Applied, Op
from millrace.model.ops.imports import ExpireImport
from millrace.model.ops.rows import ReplayBegun, ReplayErrors
from millrace.model.ops.spans import ExpireSpan
from millrace.model.ops.tables import PurgeTable
from millrace.model.table import Definition
from simulate.checks import CHECKS
from simulate.clients import Sender, Uploader
from simulate.content import LAKE, MIRROR, PARTITION_OF, TABLES, Chunk, Policy, Row, bitmap_of
from simulate.logs import OPS, PROGRESS, RAW, Logs
from simulate.queries import all_queries
from simulate.server import Accountant, Controller, Crash
from simulate.sinks import ErrorStore, TableSink
from simulate.store import MemoryStore, Store
from simulate.watch import Applying, Watch

MORNING_US = 1_700_000_000_000_000
LEASE_US = 60_000_000
SPAN_LEASE_SECONDS = 120
KEPT_DROPPED_US = 200_000_000


class World:
    def __init__(self, make_store: Callable[[dict[bytes, tuple[Row, ...]]], Store] = MemoryStore) -> None:
        self.now_us = MORNING_US
        self.logs = Logs()
        self.contents: dict[bytes, tuple[Row, ...]] = {}
        self.store = make_store(self.contents)
        self.definitions: dict[str, Definition] = {}
        self.stops: set[str] = set()
        self.sinks = {
            name: {table: TableSink(self.definitions.__getitem__) for table in TABLES} for name in (LAKE, MIRROR)
        }
        self.down: set[str] = set()
        self.errors = ErrorStore()
        self.queries = all_queries(self)
        self.heard: dict[str, Applied] = {}
        self.seen_us: dict[str, int] = {}
        self.uploaders: list[Uploader] = []
        self.senders: list[Sender] = []
        self.spans: list[tuple[str, str]] = []
        self.policies: dict[tuple[str, str], Policy] = {}
        self.at_sea: list[tuple[Chunk, int]] = []
        self.crashes = 0.0
        self.backups: list[Any] = []
        self._ids = 0
        self.watch = Watch(self, CHECKS)
        self.start_server()

    # What the parts of the world do to it.

    def ask(self, op: Op[Any], prefix: str = "op") -> str:
        self._ids += 1
        asked = op.asked_as(f"{prefix}_{self._ids}")
        self.logs.append(OPS, PARTITION_OF[op.tenant], asked, self.now_us // 1000 * 1000)
        return asked.id

    def append_chunk(self, chunk: Chunk, partition: int) -> None:
        self.watch.appended(chunk)
        self.logs.append(RAW, partition, chunk, self.now_us)

    def arrive_late(self, chance: Random) -> bool:
        """A chunk that someone sent who is no longer there."""
        if self.at_sea:
            self.append_chunk(*self.at_sea.pop(chance.randrange(len(self.at_sea))))
            return True
        return False

    def tell_progress(self, fact: Any) -> None:
        self.logs.append(PROGRESS, 0, fact, self.now_us)

    def stop(self, import_id: str) -> None:
        self.stops.add(import_id)

    def payload(self, rows: tuple[Row, ...]) -> bytes:
        name = b"%d" % len(self.contents)
        self.contents[name] = rows
        return name

    def some_span(self, tenant: str, chance: Random) -> str | None:
        names = [name for of, name in self.spans if of == tenant]
        return chance.choice(names) if names and chance.random() < 0.4 else None

    # The server's life.

    def start_server(self) -> None:
        self.controller, self.rival, self.accountant = Controller(self), Controller(self), Accountant(self)
        self.seen_us = dict.fromkeys(self.seen_us, self.now_us)
        for imp in list(self.store.read().imports.values()):
            if imp.kind == REPLAY and imp.state == PROCESSING:
                self._send_again(imp)

    def may_crash(self, chance: Random) -> None:
        if chance.random() < self.crashes:
            raise Crash

    def crash_server(self, chance: Random) -> None:
        self.heard.clear()
        for uploader in self.uploaders:
            uploader.break_off()
        for sender in self.senders:
            sender.break_off(chance)
        self.start_server()

    def tell(self, applied: Iterable[Applying]) -> None:
        """What the controller tells within its process, after the commit."""
        imports = self.store.read().imports
        received: list[str] = []
        for one in applied:
            for answer in one.outcome.answers:
                if answer.is_waiting:
                    continue
                self.heard[answer.op_id] = answer
                if isinstance(answer.result, ReplayBegun) and answer.result.import_id in imports:
                    self._send_again(imports[answer.result.import_id])
                received += answer.result.recheck
        self.accountant.recheck(received)

    def _send_again(self, imp: Import) -> None:
        """A replay's chunks are made of the rejects that are kept: the same chunks, however often they are sent."""
        if imp.is_over or imp.of is None:
            return
        for number, rows in sorted(self.rejects_by_chunk(imp.of, imp).items()):
            chunk = Chunk(imp.id, number, imp.first_version + number, imp.definition, tuple(rows.values()), tuple(rows))
            self.append_chunk(chunk._replace(deletes=self.watch.book[imp.of].chunks[number].deletes), 0)

    def rejects_by_chunk(self, import_id: str, replay: Import | None = None) -> dict[int, dict[int, Row]]:
        """The rejected rows of an import that are kept, or those of them that a replay has claimed."""
        wanted = bitmap_of(replay.options["rows"]) if replay is not None else None
        found: dict[int, dict[int, Row]] = {}
        for number, (chunk, row) in sorted(self.errors.rows.get(import_id, {}).items()):
            if wanted is None or number in wanted:
                found.setdefault(chunk, {})[number] = row
        return found

    # What time alone brings about.

    def ring(self) -> None:
        """The timer: uploads that fell silent, spans that nobody uses, dropped tables past their retention."""
        store, now = self.store.read(), self.now_us
        for imp in store.imports.values():
            if imp.state == ADMITTED and self.seen_us.get(imp.id, imp.begun_us) < now - LEASE_US:
                self.ask(ExpireImport(imp.tenant, imp.id, idle_seconds=60))
        for (tenant, name), span in store.spans.items():
            is_unused = span.state == "open" and span.open_members == 0
            if is_unused and store.spans_seen[tenant, name] + span.lease_seconds * 1_000_000 < now:
                self.ask(ExpireSpan(tenant, name))
        for table in store.tables.values():
            if table.dropped_us is not None and not table.is_purged and table.dropped_us < now - KEPT_DROPPED_US:
                self.ask(PurgeTable(table.tenant, table.name, dropped_us=table.dropped_us))

    def purge_tombstones(self, table: tuple[str, str]) -> None:
        if self.accountant.is_up_to_date:
            unsettled = [imp.first_version for imp in self.store.read().imports.values() if not imp.is_over]
            safe_version = min([*unsettled, *self._replays_in_line(), self.now_us]) - 1
            for sink in self.sinks.values():
                sink[table].purge_tombstones(safe_version)

    def _replays_in_line(self) -> list[int]:
        """Replays that were asked for and may still be admitted, under versions of long ago."""
        store = self.store.read()
        asked = (record.value for record in self.logs.every(OPS) if isinstance(record.value, ReplayErrors))
        answers = ((op, store.answer(op.id)) for op in asked)
        return [op.first_version for op, answer in answers if answer is None or answer.is_waiting]
