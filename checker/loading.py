"""The clients of a run, each a thread: sequential ones wait for the end of each import, concurrent ones keep several open."""

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from checker.board import Board, Lines
from checker.caller import Caller
from checker.capabilities import DELETES, SPANS, STREAMS
from checker.imported import TERMINAL
from checker.making import DELETE, STREAM, File, Maker, some_rows
from checker.sending import Sender
from checker.tables import Table

BURST = 3
BURST_ROWS = 2500
SHARES = {
    "import": 0.40, "burst": 0.14, "stream": 0.12, "by_pieces": 0.08, "cancelled": 0.05, "abandoned": 0.02, "repeat": 0.05,
    "page": 0.05, "delete": 0.04, "span": 0.05,
}  # fmt: skip
CallerFor = Callable[[str], Caller]


class Scene:
    """What all clients of a run share."""

    def __init__(self, tables: list[Table], maker: Maker, board: Board, folder: Path, capabilities: set[str]) -> None:
        self.tables, self.maker, self.board = tables, maker, board
        self.pages = Lines(folder / "pages.jsonl")
        self.capabilities = capabilities
        self.refused: set[str] = set()


class Client:
    """Does one thing after another until it is told to stop."""

    def __init__(self, scene: Scene, seed: int, caller_for: CallerFor, *, most_open: int, pause: float) -> None:
        self._scene, self._caller_for, self._seed = scene, caller_for, seed
        self._rng = np.random.default_rng(seed)
        self._callers: dict[str, Caller] = {}
        self._most_open, self._pause = most_open, pause
        self._open: list[tuple[Table, str]] = []
        self._ended: list[tuple[Table, str]] = []
        self._sent: list[File] = []
        self._spans = 0

    def run(self) -> None:
        stop = self._scene.board.stop
        actions = {
            "import": self._import, "burst": self._burst, "stream": self._stream, "by_pieces": self._by_pieces,
            "cancelled": self._cancelled, "abandoned": self._abandoned, "repeat": self._repeat, "page": self._page,
            "delete": self._delete, "span": self._span,
        }  # fmt: skip
        while not stop.is_set():
            actions[str(self._rng.choice(list(SHARES), p=list(SHARES.values())))]()
            self._wait_for_room()
            stop.wait(float(self._rng.exponential(self._pause)))

    def _table(self, *, keyed: bool = False, concurrent: bool = False, tenant: str | None = None) -> Table:
        tables = [
            table
            for table in self._scene.tables
            if (table.keyed or not keyed) and not (concurrent and table.is_exclusive) and tenant in (None, table.tenant)
        ]
        shares = np.array([table.share for table in tables])
        return tables[int(self._rng.choice(len(tables), p=shares / shares.sum()))]

    def _sender(self, tenant: str) -> Sender:
        if tenant not in self._callers:
            self._callers[tenant] = self._caller_for(tenant)
        return Sender(self._callers[tenant], self._scene.board, self._rng)

    def _note(self, file: File, import_id: str | None) -> None:
        if import_id is not None:
            self._open.append((file.table, import_id))
            self._sent = [*self._sent[-9:], file]

    def _send(self, table: Table, count: int, kind: str = "load", span: str | None = None) -> None:
        file = self._scene.maker.make(self._rng, table, count, kind)
        self._note(file, self._sender(table.tenant).post(file, span))

    def _import(self) -> None:
        self._send(self._table(), some_rows(self._rng))

    def _stream(self) -> None:
        if STREAMS in self._scene.capabilities:
            self._send(self._table(), int(self._rng.integers(1, 400)), STREAM)

    def _delete(self) -> None:
        if DELETES in self._scene.capabilities:
            self._send(self._table(keyed=True), int(self._rng.integers(1, 300)), DELETE)

    def _burst(self) -> None:
        """Several files into one keyed table at the same time: the last one admitted must win on every common key."""
        table = self._table(keyed=True, concurrent=True)
        files = [self._scene.maker.make(self._rng, table, BURST_ROWS) for _ in range(BURST)]
        seeds = self._rng.integers(0, 1 << 32, BURST)
        threads = [
            threading.Thread(target=self._send_alone, args=(file, int(seed)), daemon=True)
            for file, seed in zip(files, seeds, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(600)

    def _send_alone(self, file: File, seed: int) -> None:
        caller = self._caller_for(file.table.tenant)
        self._note(file, Sender(caller, self._scene.board, np.random.default_rng(seed)).post(file))
        caller.close()

    def _pieces(self, count: int, stop_after: float = 1.0, *, cancel: bool = False) -> tuple[File, str | None]:
        table = self._table()
        file = self._scene.maker.make(self._rng, table, count)
        return file, self._sender(table.tenant).by_pieces(file, stop_after=stop_after, cancel=cancel)

    def _by_pieces(self) -> None:
        self._note(*self._pieces(some_rows(self._rng)))

    def _cancelled(self) -> None:
        self._note(*self._pieces(some_rows(self._rng) + 5000, float(self._rng.choice([0.3, 0.7, 1.0])), cancel=True))

    def _abandoned(self) -> None:
        """Its lease runs out; nothing waits for it here."""
        self._pieces(some_rows(self._rng) + 5000, 0.6)

    def _repeat(self) -> None:
        if self._sent:
            file = self._sent[int(self._rng.integers(len(self._sent)))]
            self._sender(file.table.tenant).again(file)

    def _span(self) -> None:
        """A set of imports over tables of one tenant, sometimes nested."""
        if SPANS not in self._scene.capabilities:
            return
        self._spans += 1
        tenant = self._table().tenant
        name = f"set-{self._seed}-{self._spans}" + ("/part" if self._rng.random() < 0.3 else "")
        if self._sender(tenant).span(name, "begin"):
            for _ in range(int(self._rng.integers(1, 4))):
                kind = STREAM if STREAMS in self._scene.capabilities and self._rng.random() < 0.3 else "load"
                self._send(
                    self._table(tenant=tenant), int(self._rng.integers(1, 3000 if kind == "load" else 300)), kind, name
                )
            for level in (name, name.split("/", maxsplit=1)[0]) if "/" in name else (name,):
                self._sender(tenant).span(level, "end")

    def _page(self) -> None:
        """Pages of rejected rows of an import that has ended, read twice."""
        if self._ended:
            table, import_id = self._ended[int(self._rng.integers(len(self._ended)))]
            limit = int(self._rng.integers(3, 200))
            for reading in (1, 2):
                rows = self._sender(table.tenant).pages(table, import_id, limit)
                if rows is not None:
                    self._scene.pages.add({"import": import_id, "reading": reading, "rows": rows})

    def _wait_for_room(self) -> None:
        board = self._scene.board
        while not board.stop.is_set():
            ended = [each for each in self._open if board.has_ended(each[1])]
            self._ended = [*self._ended, *ended][-10:]
            self._open = [each for each in self._open if each not in ended]
            # Nobody waits for a broken table: the load on the others must go on.
            waiting = [each for each in self._open if each[0].place not in board.broken]
            if len(waiting) < self._most_open:
                return
            table, import_id = waiting[0]
            document = self._sender(table.tenant).status(table, import_id, wait=5.0)
            if document.get("state") in TERMINAL:
                board.ended(import_id)
            elif not document:
                board.stop.wait(0.5)
