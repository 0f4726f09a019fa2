"""The clients of a run, each a thread: sequential ones wait for the end of each import, concurrent ones keep several open."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from checker.board import Board, Lines
from checker.caller import Caller
from checker.capabilities import DELETING
from checker.history import FAIL, OK
from checker.sending import File, Maker, Sender, some_rows
from checker.tables import Table, next_shape

BURST = 3
BURST_ROWS = 6000
TERMINAL = ("completed", "failed", "cancelled")
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
        self._scene, self._caller_for = scene, caller_for
        self._rng = np.random.default_rng(seed)
        self._callers: dict[str, Caller] = {}
        self._most_open, self._pause = most_open, pause
        self._open: list[tuple[Table, str]] = []
        self._sent: list[File] = []

    def run(self) -> None:
        stop = self._scene.board.stop
        while not stop.is_set():
            self._choose()()
            self._wait_for_room()
            stop.wait(float(self._rng.exponential(self._pause)))

    def _choose(self) -> Callable[[], None]:
        share = self._rng.random()
        for limit, action in (
            (0.56, self._import), (0.70, self._burst), (0.80, self._by_pieces), (0.85, self._cancelled),
            (0.87, self._abandoned), (0.92, self._repeat), (0.97, self._page), (1.00, self._delete),
        ):  # fmt: skip
            if share < limit:
                return action
        return self._import

    def _table(self) -> Table:
        tables = self._scene.tables
        shares = np.array([table.share for table in tables])
        return tables[int(self._rng.choice(len(tables), p=shares / shares.sum()))]

    def _sender(self, tenant: str) -> Sender:
        if tenant not in self._callers:
            self._callers[tenant] = self._caller_for(tenant)
        return Sender(self._callers[tenant], self._scene.board, self._rng)

    def _file(self, table: Table, count: int) -> File:
        return self._scene.maker.make(self._rng, table, count)

    def _note(self, file: File, import_id: str | None) -> None:
        if import_id is not None:
            self._open.append((file.table, import_id))
            self._sent = [*self._sent[-9:], file]

    def _import(self) -> None:
        table = self._table()
        file = self._file(table, some_rows(self._rng))
        self._note(file, self._sender(table.tenant).post(file))

    def _burst(self) -> None:
        """Several files into one keyed table at the same time: the last one admitted must win on every common key."""
        keyed = [table for table in self._scene.tables if table.keyed]
        table = keyed[int(self._rng.integers(len(keyed)))]
        files = [self._file(table, BURST_ROWS) for _ in range(BURST)]
        seeds = self._rng.integers(0, 1 << 32, BURST)
        threads = [
            threading.Thread(target=self._send_alone, args=(file, int(seed)), daemon=True)
            for file, seed in zip(files, seeds, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _send_alone(self, file: File, seed: int) -> None:
        caller = self._caller_for(file.table.tenant)
        self._note(file, Sender(caller, self._scene.board, np.random.default_rng(seed)).post(file))
        caller.close()

    def _by_pieces(self) -> None:
        table = self._table()
        file = self._file(table, some_rows(self._rng))
        self._note(file, self._sender(table.tenant).by_pieces(file))

    def _cancelled(self) -> None:
        table = self._table()
        file = self._file(table, some_rows(self._rng) + 5000)
        share = float(self._rng.choice([0.3, 0.7, 1.0]))
        self._note(file, self._sender(table.tenant).by_pieces(file, stop_after=share, cancel=True))

    def _abandoned(self) -> None:
        """Its lease runs out; nothing waits for it here."""
        table = self._table()
        file = self._file(table, some_rows(self._rng) + 5000)
        self._sender(table.tenant).by_pieces(file, stop_after=0.6)

    def _repeat(self) -> None:
        if self._sent:
            file = self._sent[int(self._rng.integers(len(self._sent)))]
            self._sender(file.table.tenant).again(file)

    def _delete(self) -> None:
        if DELETING not in self._scene.capabilities:
            return self._import()
        keyed = [table for table in self._scene.tables if table.keyed]
        table = keyed[int(self._rng.integers(len(keyed)))]
        file = self._scene.maker.make(self._rng, table, int(self._rng.integers(1, 200)), deletes=True)
        self._note(file, self._sender(table.tenant).post(file))

    def _page(self) -> None:
        """Pages of rejected rows of an import that has ended, read twice."""
        ended = [(table, import_id) for table, import_id in self._open if self._scene.board.has_ended(import_id)]
        for table, import_id in ended[:1]:
            limit = int(self._rng.integers(3, 200))
            for reading in (1, 2):
                rows = read_pages(self._callers[table.tenant], table, import_id, limit)
                if rows is not None:
                    self._scene.pages.add({"import": import_id, "reading": reading, "rows": rows})

    def _wait_for_room(self) -> None:
        board = self._scene.board
        self._open = [
            (table, import_id) for table, import_id in self._open[-20:] if not board.has_ended(import_id)
        ] or self._open[-1:]
        while not board.stop.is_set():
            waiting = [(table, import_id) for table, import_id in self._open if not board.has_ended(import_id)]
            if len(waiting) < self._most_open:
                return
            table, import_id = waiting[0]
            document = self._sender(table.tenant).status(table, import_id, wait=5.0)
            if document.get("state") in TERMINAL:
                board.ended(import_id)
            elif not document:
                board.stop.wait(0.5)


def read_pages(caller: Caller, table: Table, import_id: str, limit: int) -> list[int] | None:
    """The row numbers on all pages; None if a page could not be had."""
    rows: list[int] = []
    cursor = ""
    while True:
        params = {"limit": limit, **({"cursor": cursor} if cursor else {})}
        answer = caller.ask("errors", "GET", f"/v1/imports/{import_id}/errors", table=table.name, params=params)
        if answer.kind != OK:
            return None
        rows += [item["row"] for item in answer.document["items"]]
        cursor = answer.document.get("next") or ""
        if not cursor:
            return rows


class Definer:
    """Changes the shape of one table after the other, at a steady pace."""

    def __init__(self, scene: Scene, seed: int, caller_for: CallerFor, pause: float) -> None:
        self._scene, self._caller_for, self._pause = scene, caller_for, pause
        self._rng = np.random.default_rng(seed)
        self._callers: dict[str, Caller] = {}

    def run(self) -> None:
        stop = self._scene.board.stop
        while not stop.wait(self._pause):
            self.change(self._scene.tables[int(self._rng.integers(len(self._scene.tables)))])

    def declare_all(self) -> None:
        for table in self._scene.tables:
            table.wanted = table.known
            deadline = time.monotonic() + 60
            while table.wanted is not None:
                self.change(table)
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{table.tenant}/{table.name} cannot be declared")

    def change(self, table: Table) -> None:
        """Asks for another shape; one whose outcome is unknown is asked for again the next time."""
        if table.tenant not in self._callers:
            self._callers[table.tenant] = self._caller_for(table.tenant)
        shape = next_shape(table, self._rng, self._scene.refused)
        body = json.dumps(table.document(shape)).encode()
        table.wanted = shape
        headers = {"Content-Type": "application/json"}
        answer = self._callers[table.tenant].ask(
            "define", "PUT", table.path, table=table.name, body=body, headers=headers
        )
        if answer.kind == OK and answer.status == 200:
            table.known, table.wanted = shape, None
        elif answer.kind == FAIL and answer.status:
            table.wanted = None
            self._scene.refused.add("widen" if shape.is_wide and not table.known.is_wide else "default")
