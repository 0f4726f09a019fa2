"""An upload is silent only while its sender is: not while it is cut, and not while Kafka lets it wait."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from millrace.api.jobs.timer import due_ops
from millrace.api.uploads import session
from millrace.api.uploads.in_flight import InFlight
from millrace.api.uploads.session import Session, UploadServices
from millrace.declare.table import parse_table
from millrace.model.errors import Unavailable
from millrace.model.names import new_id
from millrace.model.ops.imports import BeginImport
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from millrace.store import tables as t
from millrace.store.records import find_import
from millrace.upload.digest import RunningDigest
from millrace.upload.gateway import Resume
from tests.support.platform import record
from tests.support.small_server import SmallPlatform

LEASE_SECONDS = 60
FINISH_TURNS = 3


class ReceivingPlatform(SmallPlatform):
    """What a session asks of a platform besides."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, ())
        self.in_flight = InFlight(4, lambda _: 1.0)
        self.apply(DefineTenant("acme", agreement={"client": "acme"}))
        declaration = parse_table(record("notes", ("id", "long"))).to_dict()
        self.apply(DefineTable("acme", "notes", declaration=declaration))

    def session(self, upload: "StubUpload") -> Session:
        import_id = new_id("imp")
        self.apply(BeginImport("acme", "notes", id=import_id))
        with self.store.read() as connection:
            imp = find_import(connection, import_id)
        log: Any = self
        services = UploadServices(
            self.store, self.exchange, log, log, self.quotas, self.sealing, self.in_flight, log, raw_partitions=0
        )
        return Session(services, imp, None, upload)  # type: ignore[arg-type]

    def expired(self, seconds_later: int = 0) -> list[str]:
        """Imports whose expiry is asked for then."""
        then_us = time.time_ns() // 1000 + seconds_later * 1_000_000
        with self.store.read() as connection:
            return [op.subject for op in due_ops(connection, then_us, LEASE_SECONDS, 1 << 30, self.in_flight.at_work)]

    def renewals(self) -> list[int]:
        with self.store.read() as connection:
            return list(connection.execute(select(t.uploads.c.seen_us)).scalars())


class StubUpload:
    confirmed, written, sent_chunks, received, repeated_headers = Resume(), None, 0, 0, 0

    def __init__(self, turn: Callable[[], None]) -> None:
        self.digest = RunningDigest("imp_stub")
        self._turn = turn
        self._turns = 0

    def feed(self, piece: bytes) -> None:
        self._turn()

    def finish_some(self) -> Resume | None:
        self._turn()
        self._turns += 1
        return Resume(1, 1, 1) if self._turns == FINISH_TURNS else None

    def close(self) -> None: ...


async def body() -> AsyncIterator[bytes]:
    yield b"rows"


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReceivingPlatform]:
    """To it every moment is one to renew leases."""
    monkeypatch.setattr(session, "REMEMBER_SECONDS", -1.0)
    made = ReceivingPlatform(tmp_path)
    yield made
    made.in_flight.stop()
    made.store.close()


def test_cutting_a_file_at_its_end_renews_the_lease_at_every_turn(platform: ReceivingPlatform) -> None:
    seen: list[list[int]] = []

    async def end() -> None:
        await platform.session(StubUpload(lambda: seen.append(platform.renewals()))).end()

    asyncio.run(end())
    assert len({tuple(renewed) for renewed in seen}) == FINISH_TURNS


@pytest.mark.parametrize("kafka_comes_back", [True, False])
def test_an_upload_that_kafka_lets_wait_is_not_expired(platform: ReceivingPlatform, kafka_comes_back: bool) -> None:
    waits, back = threading.Event(), threading.Event()

    def turn() -> None:
        waits.set()
        assert back.wait(10)
        if not kafka_comes_back:
            raise Unavailable("Kafka did not take the record.")

    async def receive() -> None:
        session = platform.session(StubUpload(turn))
        taking = asyncio.create_task(session.take(body()))
        assert await asyncio.to_thread(waits.wait, 10)
        assert platform.expired(2 * LEASE_SECONDS) == []
        back.set()
        await asyncio.wait([taking], timeout=20)
        assert platform.renewals(), "the sender has the whole lease from here"
        assert platform.expired(2 * LEASE_SECONDS) == [session.imp.id]
        assert isinstance(taking.exception(), Unavailable) is not kafka_comes_back

    asyncio.run(receive())
