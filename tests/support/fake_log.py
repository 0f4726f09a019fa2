"""A stand-in for the platform behind the API: a table log in memory that knows appends and streams, and a judge of rows.

Rows that hold the word `bad` are rejected. Faults are told to it: answers that are lost, a log that is away, a table whose
turn must be waited for. It outlives servers, as Kafka does. Everything runs in the server's event loop."""

import asyncio
import threading
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import uvicorn
import zstandard
from fastapi import FastAPI

from millrace.api.admission import Admission
from millrace.api.documents.waiting import PlatformOutlook
from millrace.api.jobs.sink_watch import SinkWatch
from millrace.api.op_log import raise_refusal
from millrace.api.problems import add_problems
from millrace.api.routes import imports, rows
from millrace.api.rows.senders import Senders
from millrace.api.sealing import Sealing
from millrace.api.watch import Watch
from millrace.auth.quotas import Quotas
from millrace.auth.tokens import Tokens
from millrace.client import Millrace
from millrace.control.controller import opened_append
from millrace.declare.table import parse_table
from millrace.embed.ports import free_ports
from millrace.exchange.home import Home
from millrace.exchange.mailboxes import open_exchange
from millrace.exchange.queues import Queues
from millrace.lake.errors_table import ERRORS_SCHEMA, REJECTED_SCHEMA, stored_rejected
from millrace.lake.schema import TableSpec
from millrace.lake.sidecar import StagedChunk, write_data_file
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.model.chunk import ChunkVerdict
from millrace.model.errors import Unavailable
from millrace.model.frames import MAX_FRAME_BYTES
from millrace.model.imports import Counts, Import
from millrace.model.names import chunk_id
from millrace.model.ops import Applied
from millrace.model.ops import rows as ops
from millrace.model.ops.results import ImportStatus, Refusal, Result
from millrace.model.ops.rows import OpenSender, RowsAppended, SenderOpened
from millrace.model.table import define
from millrace.settings import KEYS_HERE, Settings
from millrace.store import tables as t
from millrace.store.engine import ControlStore, upsert
from millrace.store.records import import_row
from millrace.upload.gather import GatherLimits
from millrace.wire.envelope import checksum

TENANT, TABLE = "acme", "orders"
DECLARATION = {"schema": {"type": "record", "name": TABLE, "fields": [{"name": "id", "type": "long"}]}}


@dataclass
class Append:
    import_id: str
    version: int
    table: str
    span: str | None
    streams: dict[str, tuple[int, int]]
    rows: list[bytes]


@dataclass
class FakeLog:
    root: Path
    ends_at_once: bool = True
    lost_answers: int = 0
    away: int = 0
    busy: bool = False
    appends: list[Append] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    streams: dict[tuple[str, str], int] = field(default_factory=dict)
    listeners: list[Callable[[list[Applied]], None]] = field(default_factory=list)
    waiting: list[tuple[ops.Append | OpenSender, asyncio.Future[Applied]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home, self.exchange = Home(self.root), open_exchange(self.root)
        self.store = ControlStore(f"sqlite:///{self.root / 'control.db'}")
        self.tokens = Tokens(self.store)
        self.quotas = Quotas(self.store)
        self.sealing = Sealing(self.exchange, KEYS_HERE, self.quotas)
        self.admin = self.tokens.make("admin", None)
        self.stranger = self.tokens.make("stranger", "other")
        declared = define(TENANT, parse_table(DECLARATION), 1).to_json().decode()
        known = {"tenant": TENANT, "name": TABLE, "folded_name": TABLE, "definition": declared}
        row = {c.name: None if c.nullable else c.type.python_type() for c in t.tables.columns}
        with self.store.write() as connection:
            upsert(connection, t.tables, {**row, **known})

    def rows(self) -> list[bytes]:
        return [row for append in self.appends for row in append.rows]

    def listen(self, listener: Callable[[list[Applied]], None]) -> None:
        self.listeners.append(listener)

    async def applied(self, op: ops.Append | OpenSender, *, wait: float | None) -> Result:
        """Waits without limit, as the senders ask it to."""
        assert op.tenant == TENANT
        assert wait is None
        if self.away:
            self.away -= 1
            raise Unavailable("Kafka did not take the record.", remedy="Is the broker running?")
        if self.busy:
            turn: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
            self.waiting.append((op, turn))
            return raise_refusal(await turn).result
        applied = self._apply(op)
        if isinstance(op, ops.Append) and self.lost_answers:
            self.lost_answers -= 1
            await asyncio.sleep(3600)
        await asyncio.sleep(0)
        return raise_refusal(applied).result

    def free(self) -> None:
        """The table's turn has come for all that waited."""
        self.busy = False
        waited, self.waiting = self.waiting, []
        for op, turn in waited:
            if not turn.done():
                turn.set_result(self._apply(op))

    def _apply(self, op: ops.Append | OpenSender) -> Applied:
        if isinstance(op, OpenSender):
            self.opened.append(op.sender)
            return Applied(op.id, SenderOpened(op.sender, self.streams.get((op.table, op.sender), 0)))
        for sender, (first, _) in op.senders.items():
            if first != self.streams.get((op.table, sender), 0) + 1:
                return Applied(op.id, refusal=Refusal("clash", "out_of_step", "No.", "Open it again."))
        op = opened_append(op, self.exchange.log_keys) if op.log_key else op
        payload = b64decode(op.payload)
        plain = zstandard.ZstdDecompressor().decompress(payload)
        found = plain.splitlines()
        assert (checksum(payload), len(plain), len(found)) == (op.checksum, op.plain_bytes, op.rows)
        for sender, (_, last) in op.senders.items():
            self.streams[op.table, sender] = last
        append = Append(op.id, len(self.appends) + 1, op.table, op.span, op.senders, found)
        self.appends.append(append)
        if self.ends_at_once:
            asyncio.get_running_loop().call_later(0.001, self.end, append)
        return Applied(op.id, RowsAppended(op.id, append.version))

    def end(self, append: Append, error: dict[str, str] | None = None) -> None:
        bad = [number for number, row in enumerate(append.rows, 1) if b"bad" in row]
        good = len(append.rows) - len(bad)
        if bad:
            self._reject(append, bad)
        if error is None and not good:
            error = {"code": "nothing_accepted", "message": "None.", "remedy": ""}
        state = "failed" if error else "completed"
        counts = Counts(1, len(append.rows), good, len(bad))
        imp = Import(append.import_id, TENANT, append.table, "d", state, append.version, 1, ("delta",), 1)
        with self.store.write() as connection:
            row = {**import_row(imp, 1), "counts": asdict(counts), "error": error}
            upsert(connection, t.imports, row)
        self._tell([Applied("op_settle", ImportStatus(append.import_id, state))])

    def _reject(self, append: Append, bad: list[int]) -> None:
        reasons = [{"column": "id", "rule": "type", "message": "is bad", "value": None}]
        rejected = [{"row": n, "line": n, "raw": append.rows[n - 1], "reasons": reasons} for n in bad]
        table = pa.Table.from_pylist(rejected, REJECTED_SCHEMA)
        stored = stored_rejected(ChunkVerdict(append.import_id, 0, append.version, len(bad), 0, len(bad)), table)
        lake = LakeTable(Store(self.home.table_errors(TENANT, append.table)), TableSpec("errors", ERRORS_SCHEMA))
        described = [StagedChunk(chunk_id(append.import_id, 0), 0, len(bad), append.version)]
        lake.apply([write_data_file(lake.store, stored, (), f"{append.import_id}-00000000", described)])

    def _tell(self, applied: list[Applied]) -> None:
        """From another thread, as the controller does."""
        listeners = list(self.listeners)
        threading.Thread(target=lambda: [listener(applied) for listener in listeners]).start()


def _refuse(op: object) -> None:
    raise AssertionError("no sink is watched here")


class FakeServer:
    """The API over the fake log, in a thread of its own."""

    def __init__(self, log: FakeLog, port: int, limits: GatherLimits | None = None) -> None:
        self.log = log
        self.url = f"http://127.0.0.1:{port}"
        self.loop: asyncio.AbstractEventLoop
        self.senders: Senders
        self._limits = limits
        app = FastAPI(lifespan=self._lifespan)
        add_problems(app)
        app.include_router(rows.router)
        app.include_router(imports.router)
        settings = {"log_level": "critical", "access_log": False, "ws_max_size": 2 * MAX_FRAME_BYTES}
        self._server = uvicorn.Server(uvicorn.Config(app, port=port, lifespan="on", **settings))
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            time.sleep(0.005)

    @asynccontextmanager
    async def _lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        self.loop = asyncio.get_running_loop()
        log, watch = self.log, Watch()
        admission = Admission(
            log.store,
            log.quotas,
            SinkWatch(log.exchange.places, Queues(log.store), lambda _: 0, lambda *_: False, _refuse),
        )
        self.senders = Senders(log.store, log, admission, log.sealing, log.quotas, gathering=self._limits)  # type: ignore[arg-type]
        log.listen(watch.on_applied)
        log.listen(self.senders.appends.on_applied)
        app.state.services = SimpleNamespace(
            store=log.store,
            exchange=log.exchange,
            tokens=log.tokens,
            quotas=log.quotas,
            op_log=log,
            watch=watch,
            senders=self.senders,
            sessions=None,
            outlook=PlatformOutlook(lambda: "ok", lambda _: False, log.quotas, 60),
            settings=Settings(home=log.root),
        )
        yield

    def client(self, token: str | None = None) -> Millrace:
        return Millrace(self.url, token or self.log.admin)

    def call(self, work: Callable[[], Any]) -> Any:
        """In the server's loop."""

        async def run() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)

    def kill(self) -> None:
        """Without a word to anyone: connections are cut, what was in memory is gone."""
        if not self._thread.is_alive():
            return
        self.log.listeners.clear()
        self.call(self._abort)
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(10)

    def _abort(self) -> None:
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        for task in asyncio.all_tasks():
            if "Gatherer" in repr(task.get_coro()):
                task.cancel()


@contextmanager
def fake_server(log: FakeLog, limits: GatherLimits | None = None) -> Iterator[FakeServer]:
    server = FakeServer(log, free_ports(1)[0], limits)
    try:
        yield server
    finally:
        server.kill()
