"""Those who upload and those who stream. They hear answers, forget them, ask again, break off and come back."""

from base64 import b64encode
from random import Random
from typing import TYPE_CHECKING

from millrace.model.imports import ADMITTED, DELETE
from millrace.model.ops.imports import BeginImport, EndImport, FailImport, ImportBegun
from millrace.model.ops.rows import Append, OpenSender, SenderOpened
from simulate.content import Chunk, Row, some_rows
from simulate.logs import QUICK, RAW_PARTITIONS

if TYPE_CHECKING:
    from simulate.world import World

Name = tuple[str, str]
MOST_CHUNKS, MOST_ROWS, MOST_IN_FLIGHT = 5, 3, 3


class Uploader:
    """A file on its way: asks to be admitted, sends chunks, says that this was all."""

    def __init__(self, world: "World", op: BeginImport, chance: Random, rows: tuple[Row, ...] = ()) -> None:
        self._world = world
        self._op = op
        self._asked: list[str] = []
        self._in_flight: list[Chunk] = []
        self._confirmed = 0
        self._is_told_all = False
        self.table = op.tenant, op.table
        self.key = op.idempotency_key
        self.import_id: str | None = None
        self.is_gone = False
        bad = chance.choice((0.0, 0.05, 0.4))
        deletes = op.import_kind == DELETE
        pieces = [some_rows(chance, MOST_ROWS, bad=bad, deletes=deletes) for _ in range(chance.randint(0, MOST_CHUNKS))]
        self._pieces = [rows] if rows else pieces
        self._ask()

    def _ask(self) -> None:
        self._asked.append(self._world.ask(self._op, prefix="imp"))

    def step(self, chance: Random) -> bool:
        """False if there is nothing for it to do now."""
        if self.is_gone:
            return False
        if self.import_id is None:
            return self._listen(chance)
        imp = self._world.store.read().imports.get(self.import_id)
        if imp is None:
            return False
        if imp.state != ADMITTED:
            self._is_told_all = True
        return self._send(chance, imp.first_version, imp.definition, imp.publish)

    def _listen(self, chance: Random) -> bool:
        store = self._world.store.read()
        for op_id in self._asked:
            answer = store.answer(op_id)
            if answer is not None and answer.refusal is not None:
                self.is_gone = True
                return True
            if answer is not None and isinstance(answer.result, ImportBegun):
                self.import_id = answer.result.import_id
                return True
        if self.key and len(self._asked) < 3 and chance.random() < 0.3:
            self._ask()
            return True
        return False

    def _send(self, chance: Random, first: int, definition: str, publish: str) -> bool:
        assert self.import_id is not None
        if len(self._in_flight) > MOST_IN_FLIGHT or (self._in_flight and chance.random() < 0.3):
            return self._arrive(chance)
        number = self._confirmed + len(self._in_flight)
        if self._is_told_all:
            self.break_off()
            self._is_told_all = True
            return False
        self._world.seen_us[self.import_id] = self._world.now_us
        if number < len(self._pieces):
            rows = self._pieces[number]
            start = 1 + sum(len(piece) for piece in self._pieces[:number])
            numbers = tuple(range(start, start + len(rows)))
            deletes = self._op.import_kind == DELETE
            chunk = Chunk(self.import_id, number, first + number, definition, rows, numbers, number, publish=publish)
            self._in_flight.append(chunk._replace(deletes=deletes))
            return True
        if self._in_flight:
            return self._arrive(chance)
        self._end(chance)
        return True

    def _arrive(self, chance: Random) -> bool:
        """Kafka confirms in order; the same chunk may have been sent twice."""
        chunk = self._in_flight.pop(0)
        self._world.append_chunk(chunk, self._partition(chunk))
        if chance.random() < 0.1:
            self._world.append_chunk(chunk, self._partition(chunk))
        self._confirmed += 1
        return True

    def _partition(self, chunk: Chunk) -> int:
        lane = range(QUICK) if len(self._pieces) == 1 else range(QUICK, RAW_PARTITIONS)
        return lane[chunk.number % len(lane)]

    def _end(self, chance: Random) -> None:
        assert self.import_id is not None
        rows = sum(len(piece) for piece in self._pieces)
        if chance.random() < 0.05:
            error = {"code": "invalid", "message": "The file is broken.", "remedy": ""}
            self._world.ask(FailImport(self.table[0], self.import_id, error=error))
        else:
            chunks = len(self._pieces)
            self._world.ask(EndImport(self.table[0], self.import_id, chunks=chunks, rows=rows, bytes=rows))
        self._is_told_all = chance.random() < 0.9

    def break_off(self) -> None:
        """What was not confirmed is sent again, if anyone is there to do so; it may all the same arrive, at any time."""
        self._world.at_sea += [(chunk, self._partition(chunk)) for chunk in self._in_flight]
        self._in_flight.clear()
        self._is_told_all = False

    def vanish(self) -> None:
        self.break_off()
        self.is_gone = True

    def come_back(self) -> None:
        """With the same file and the same key."""
        if self.is_gone and self.key and len(self._asked) < 4:
            self.is_gone, self.import_id, self._is_told_all = False, None, False
            self._ask()


class Sender:
    """Rows numbered from 1, in batches. After a break it goes on behind the number that the platform tells it."""

    def __init__(self, world: "World", table: Name, name: str) -> None:
        self._world = world
        self._under_way: tuple[str, int] | None = None
        self._opening: str | None = None
        self._left = 3
        self.table = table
        self.name = name
        self.acknowledged = 0
        self._open()

    def _open(self) -> None:
        self._under_way = None
        self._opening = self._world.ask(OpenSender(*self.table, sender=self.name))

    def step(self, chance: Random) -> bool:
        if self._opening is not None:
            return self._opened()
        if self._under_way is not None:
            return self._heard()
        if self._left == 0:
            return False
        self._left -= 1
        self._append(chance)
        return True

    def _opened(self) -> bool:
        assert self._opening is not None
        answer = self._world.heard.get(self._opening)
        if answer is None:
            return False
        self._opening = None
        if answer.refusal is not None:
            self._left = 0
        else:
            assert isinstance(answer.result, SenderOpened)
            self.acknowledged = max(self.acknowledged, answer.result.seq)
        return True

    def _heard(self) -> bool:
        assert self._under_way is not None
        answer = self._world.heard.get(self._under_way[0])
        if answer is None:
            return False
        if answer.refusal is None:
            self.acknowledged = self._under_way[1]
        elif answer.refusal.code == "out_of_step":
            self._open()
            return True
        else:
            self._left = 0
        self._under_way = None
        return True

    def _append(self, chance: Random) -> None:
        first, count = self.acknowledged + 1, chance.randint(1, 3)
        rows = tuple(Row(seq % 6, seq, bad=seq % 7 == 3) for seq in range(first, first + count))
        last = first + count - 1
        op = Append(
            *self.table,
            rows=count,
            plain_bytes=count,
            checksum=first,
            payload=b64encode(self._world.payload(rows)).decode(),
            span=self._world.some_span(self.table[0], chance),
            senders={self.name: (first, last)},
        )
        self._under_way = self._world.ask(op, prefix="imp"), last

    def break_off(self, chance: Random) -> None:
        """It does not know what became of its last rows; mostly it asks, but it may also just send them again."""
        if self._opening is None and chance.random() < 0.3:
            self._append(chance)
        else:
            self._open()
