"""Rows of many sources become few appends: in order, bounded, nothing held for quiet tables."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from millrace.model.errors import Clash, MillraceError, Unavailable
from millrace.upload.batch import AppendKey, Batch, BatchPart, Placement
from millrace.upload.gather import Gatherer, GatherLimits

KEY = AppendKey("acme", "orders")


class Sender:
    """Hears what became of its rows."""

    wants_end = False
    digest = None

    def __init__(self, sender: str | None = None) -> None:
        self.sender = sender
        self.parts: list[tuple[BatchPart, Placement]] = []
        self.errors: list[MillraceError] = []
        self.sent = 0

    def placed(self, part: BatchPart, placement: Placement) -> None:
        self.parts.append((part, placement))

    def failed(self, error: MillraceError) -> None:
        self.errors.append(error)

    async def send(self, gatherer: Gatherer, number: int = 1, key: AppendKey = KEY, width: int = 10) -> None:
        first, self.sent = self.sent + 1, self.sent + number
        body = b"".join(b"%0*d\n" % (width - 1, row) for row in range(first, first + number))
        await gatherer.add(key, self, first, number, body)


class Log:
    """Keeps batches as they come; holds their answers while it is shut, refuses what it is told to."""

    def __init__(self) -> None:
        self.batches: list[tuple[AppendKey, Batch]] = []
        self.under_way = 0
        self.most_under_way = 0
        self.open = asyncio.Event()
        self.open.set()
        self.refuse: Callable[[Batch], MillraceError | None] = lambda batch: None
        self.ends: Callable[[AppendKey], None] = lambda key: None

    async def append(self, key: AppendKey, batch: Batch) -> Placement:
        self.batches.append((key, batch))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await self.open.wait()
            if error := self.refuse(batch):
                raise error
            asyncio.get_running_loop().call_soon(self.ends, key)
            return Placement(f"imp_{len(self.batches)}", len(self.batches))
        finally:
            self.under_way -= 1

    def rows(self) -> list[int]:
        return [len(batch.body.splitlines()) for _, batch in self.batches]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


def gathering(log: Log, **limits: Any) -> Gatherer:
    """A gatherer whose appends end as soon as they are placed."""
    gatherer = Gatherer(log.append, GatherLimits(**limits))
    log.ends = gatherer.ended
    return gatherer


def run(test: Callable[[Log], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(Log())

    asyncio.run(main())


def test_rows_that_come_together_travel_together_and_keep_their_places() -> None:
    async def test(log: Log) -> None:
        gatherer, one, other = gathering(log), Sender("one"), Sender("other")
        await one.send(gatherer, 2)
        await other.send(gatherer, 3)
        await one.send(gatherer, 1)
        await until(lambda: one.parts and other.parts)
        ((key, batch),) = log.batches
        assert key == KEY
        assert batch.rows == 6
        assert batch.senders == {"one": (1, 3), "other": (1, 3)}
        assert [(part.first_row, part.last_row) for part in batch.parts] == [(1, 3), (4, 6)]
        assert batch.body.splitlines()[:4] == [b"%09d" % n for n in (1, 2, 3, 1)]
        assert one.parts[0][1] == other.parts[0][1] == Placement("imp_1", 1)

    run(test)


def test_tables_and_spans_do_not_share_an_append() -> None:
    async def test(log: Log) -> None:
        gatherer, sender = gathering(log), Sender()
        for key in (
            KEY,
            AppendKey("acme", "orders", "night"),
            AppendKey("acme", "other"),
            AppendKey("zeta", "orders"),
        ):
            await sender.send(gatherer, key=key)
        await until(lambda: len(sender.parts) == 4)
        assert len({key for key, _ in log.batches}) == 4

    run(test)


def test_a_full_batch_does_not_wait_for_company() -> None:
    async def test(log: Log) -> None:
        gatherer = gathering(log, linger_seconds=60, flush_rows=10, flush_bytes=1000)
        await Sender().send(gatherer, 10)
        await until(lambda: log.batches)
        wide = Sender()
        await wide.send(gatherer, 1, width=2000)
        await until(lambda: wide.parts)
        assert log.rows() == [10, 1]

    run(test)


def test_load_makes_batches_larger_not_more() -> None:
    async def test(log: Log) -> None:
        gatherer = gathering(log, linger_seconds=0, flushes_per_key=2, flush_rows=1000, flush_bytes=1 << 20)
        senders = [Sender(f"s{n}") for n in range(20)]
        log.open.clear()
        for sender in senders[:2]:
            before = log.under_way
            await sender.send(gatherer)
            await until(lambda before=before: log.under_way == before + 1)
        for sender in senders[2:]:
            await sender.send(gatherer)
        for _ in range(49):
            for sender in senders:
                await sender.send(gatherer)
        assert len(log.batches) == 2
        log.open.set()
        await until(lambda: sum(part.rows for sender in senders for part, _ in sender.parts) == 1000)
        assert log.most_under_way == 2
        assert len(log.batches) < 10
        for sender in senders:
            assert [(part.first_seq, part.last_seq) for part, _ in sender.parts][-1][1] == 50

    run(test)


def test_a_source_has_one_flush_under_way_and_its_rows_stay_in_order() -> None:
    async def test(log: Log) -> None:
        gatherer, sender, other = gathering(log, linger_seconds=0), Sender("one"), Sender("other")
        log.open.clear()
        await sender.send(gatherer)
        await until(lambda: log.under_way == 1)
        await sender.send(gatherer)
        await other.send(gatherer)
        await until(lambda: log.under_way == 2)
        assert [list(batch.senders) for _, batch in log.batches] == [["one"], ["other"]]
        log.open.set()
        await until(lambda: len(sender.parts) == 2)
        assert [part.first_seq for part, _ in sender.parts] == [1, 2]

    run(test)


def test_who_is_out_of_step_does_not_spoil_the_others() -> None:
    def refuse(batch: Batch) -> MillraceError | None:
        return Clash("no", code="out_of_step") if "bad" in batch.senders else None

    async def test(log: Log) -> None:
        log.refuse = refuse
        gatherer = gathering(log)
        good, bad, nameless, also = Sender("good"), Sender("bad"), Sender(), Sender()
        for sender in (good, bad, nameless, also):
            await sender.send(gatherer, 2)
        await until(lambda: good.parts and bad.errors and nameless.parts and also.parts)
        assert [error.code for error in bad.errors] == ["out_of_step"]
        assert [*good.errors, *nameless.errors, *bad.parts] == []
        assert [sorted(batch.senders) for _, batch in log.batches] == [["bad", "good"], ["good"], ["bad"], []]
        assert [part.first_row for part, _ in (*nameless.parts, *also.parts)] == [1, 3]

    run(test)


def test_what_follows_lost_rows_of_a_stream_is_not_sent() -> None:
    async def test(log: Log) -> None:
        gatherer, sender = gathering(log, linger_seconds=0), Sender("one")
        log.open.clear()
        await sender.send(gatherer)
        await until(lambda: log.under_way == 1)
        await sender.send(gatherer)
        log.refuse = lambda batch: Unavailable("Kafka is away.")
        log.open.set()
        await until(lambda: sender.errors)
        await until(lambda: gatherer.keys == 0)
        assert len(log.batches) == 1

    run(test)


def test_a_forgotten_source_is_neither_sent_nor_tried_again() -> None:
    def refuse(batch: Batch) -> MillraceError | None:
        return Clash("no", code="out_of_step") if len(batch.parts) > 1 else None

    async def test(log: Log) -> None:
        gatherer, gone, stays = gathering(log), Sender("gone"), Sender("stays")
        log.refuse = refuse
        log.open.clear()
        await gone.send(gatherer)
        await stays.send(gatherer)
        await until(lambda: log.under_way == 1)
        await gone.send(gatherer)
        gatherer.forget(KEY, gone)
        log.open.set()
        await until(lambda: stays.parts)
        await until(lambda: gatherer.keys == 0)
        assert [sorted(batch.senders) for _, batch in log.batches] == [["gone", "stays"], ["stays"]]

    run(test)


def test_the_further_behind_the_ends_the_larger_the_batches() -> None:
    async def test(log: Log) -> None:
        gatherer, sender = gathering(log, linger_seconds=0, pace_seconds=60, longest_pace_seconds=60), Sender("one")
        log.ends = lambda key: None
        await sender.send(gatherer)
        await until(lambda: sender.parts)
        await sender.send(gatherer)
        await sender.send(gatherer)
        for _ in range(100):
            await asyncio.sleep(0)
        assert log.rows() == [1], "the next flush waits while the first has not ended"
        other = Sender()
        await other.send(gatherer, key=AppendKey("acme", "other"))
        await until(lambda: other.parts)
        full = Sender("full")
        await full.send(gatherer, GatherLimits().flush_rows, width=2)
        await until(lambda: full.parts)
        assert gatherer.keys == 2
        for _ in range(2):
            gatherer.ended(KEY)

    run(test)


def test_quiet_lanes_hold_nothing() -> None:
    async def test(log: Log) -> None:
        gatherer, sender = gathering(log), Sender()
        for number in range(500):
            await sender.send(gatherer, key=AppendKey("acme", f"t{number}"))
        assert gatherer.keys == 500
        await until(lambda: len(sender.parts) == 500)
        await until(lambda: gatherer.keys == 0)
        assert len(asyncio.all_tasks()) == 1
        waits = Sender()
        await waits.send(gatherer)
        gatherer.forget(KEY, waits)
        assert gatherer.keys == 0
        assert [timer for timer in asyncio.get_running_loop()._scheduled if not timer.cancelled()] == []  # type: ignore[attr-defined]

    run(test)


def test_what_may_wait_is_bounded_per_tenant_and_others_go_on() -> None:
    async def test(log: Log) -> None:
        gatherer = gathering(log, linger_seconds=0, tenant_bytes=100, total_bytes=10_000)
        greedy, modest = Sender("greedy"), Sender("modest")
        log.open.clear()
        await greedy.send(gatherer, 10)
        adding = asyncio.create_task(greedy.send(gatherer, 1))
        await modest.send(gatherer, 10, key=AppendKey("zeta", "orders"))
        await until(lambda: log.under_way == 2)
        assert not adding.done()
        log.open.set()
        await until(lambda: len(greedy.parts) == 2)
        assert adding.done()

    run(test)


def test_whoever_stops_waiting_for_room_leaves_it_to_others() -> None:
    async def test(log: Log) -> None:
        gatherer = gathering(log, linger_seconds=0, tenant_bytes=100)
        first, impatient, patient = Sender("a"), Sender("b"), Sender("c")
        log.open.clear()
        await first.send(gatherer, 10)
        waiting = [asyncio.create_task(sender.send(gatherer, 10)) for sender in (impatient, patient)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        log.open.set()
        await until(lambda: patient.parts)
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        assert not impatient.parts

    run(test)


def test_a_failure_of_ours_is_told_too() -> None:
    async def test(log: Log) -> None:
        gatherer, sender = gathering(log), Sender()
        log.refuse = lambda batch: 1 / 0  # type: ignore[assignment,return-value]
        await sender.send(gatherer)
        await until(lambda: sender.errors)
        await until(lambda: gatherer.keys == 0)

    run(test)
