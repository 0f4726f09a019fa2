"""A share that is full refuses what has not begun. What a request has done already is noted, ended and answered."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select
from starlette.testclient import TestClient

from millrace.api import op_log as op_log_module
from millrace.api.op_log import OpLog
from millrace.auth import quotas as quotas_module
from millrace.declare.table import parse_table
from millrace.exchange.definitions import DefinitionStore
from millrace.model.imports import LOAD
from millrace.model.ops import read_op
from millrace.model.ops.spans import BeginSpan
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from millrace.store import tables as t
from millrace.store.tables import audit
from millrace.turns import ShareTurns
from millrace.wire.client import Appended, Appender, Cluster
from millrace.wire.envelope import unpack, unpack_stamp
from millrace.wire.signing import OpKey, OpSigner
from tests.support.platform import record
from tests.support.receiving import TakingPlatform
from tests.support.whole_app import whole_app

NOWHERE = Cluster("127.0.0.1:1")
ANY_PARTITION: Any = SimpleNamespace(knows=lambda _: True, of=lambda _: 0)
CSV = b"id\n1\n"


class FullTurns:
    """A share that has no turn left for anybody, until it is given back."""

    def __init__(self, turns: ShareTurns) -> None:
        self._turns = turns

    def take(self) -> None:
        self._turns.ask = self._refuse  # type: ignore[method-assign]

    def give_back(self) -> None:
        vars(self._turns).pop("ask", None)

    def _refuse(self, tenant: str) -> "Future[None]":
        raise self._turns.refusal(tenant)


class ChunkLog:
    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.on_chunk = lambda: None

    def append(self, topic: str, _key: bytes, value: bytes, partition: int) -> "Future[Appended]":
        self.records.append(value)
        self.on_chunk()
        done: Future[Appended] = Future()
        done.set_result(Appended(topic, partition, 0))
        return done


class OpsApart(TakingPlatform):
    """With the real op log in front of the rules, and a controller that answers a moment later."""

    def __init__(self, root: Path, private_targets: tuple[str, ...]) -> None:
        super().__init__(root, private_targets)
        self.appender = ChunkLog()
        self.on_op = lambda: None
        signer: Any = self
        self.log = OpLog(self.store, signer, ANY_PARTITION)

    def try_append(self, topic: str, _key: bytes, value: bytes, partition: int) -> "Future[Appended]":
        op = read_op(unpack(value))
        self.on_op()
        threading.Timer(0.05, lambda: self.log.on_applied([self.apply(op)])).start()
        done: Future[Appended] = Future()
        done.set_result(Appended(topic, partition, 0))
        return done

    async def submit(self, op: Any, **how: Any) -> Any:
        return await self.log.submit(op, **how)

    async def applied(self, op: Any, **how: Any) -> Any:
        return await self.log.applied(op, **how)


class OverloadScene:
    def __init__(self, platform: OpsApart, client: TestClient) -> None:
        self.platform, self.client = platform, client
        self.headers = {"Authorization": f"Bearer {platform.tokens.make('q', 'acme')}", "Content-Type": "text/csv"}
        self.turns = FullTurns(client.app.state.services.shares.requests.turns)  # type: ignore[attr-defined]

    def send(self, **headers: str) -> Any:
        url = "/v1/tenants/acme/tables/notes/imports?format=csv"
        return self.client.post(url, content=CSV, headers={**self.headers, **headers})

    def imports(self) -> list[Any]:
        wanted = select(t.imports.c.id, t.imports.c.state, t.imports.c.error)
        return self.platform.store.rows(wanted.where(t.imports.c.kind == LOAD))


@contextmanager
def opened(root: Path, **agreement: Any) -> Iterator[OverloadScene]:
    with whole_app(root, OpsApart) as (platform, client):
        assert isinstance(platform, OpsApart)
        platform.apply(DefineTenant("acme", agreement={"client": "acme", **agreement}))
        declaration = parse_table(record("notes", ("id", "long"), key=("id",))).to_dict()
        platform.apply(DefineTable("acme", "notes", declaration=declaration))
        scene = OverloadScene(platform, client)
        try:
            yield scene
        finally:
            scene.turns.give_back()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every op is noted as requested; what is known of the tenant is not read again in between."""
    monkeypatch.setattr(op_log_module, "SOON_SECONDS", 0.0)
    monkeypatch.setattr(quotas_module, "KNOWN_SECONDS", 600.0)


def test_an_import_that_is_in_the_log_keeps_its_key(tmp_path: Path) -> None:
    with opened(tmp_path, encryption=True) as scene:
        scene.platform.on_op = scene.turns.take
        answers = [scene.send(**{"Idempotency-Key": "k"})]
        scene.turns.give_back()
        scene.platform.on_op = lambda: None
        answers.append(scene.send(**{"Idempotency-Key": "k"}))
        assert [answer.status_code for answer in answers] == [202, 202], answers[0].text
        [imp] = scene.imports()
        chunks = scene.platform.appender.records
        assert chunks
        for chunk in chunks:
            header, _ = unpack_stamp(chunk)
            assert header is not None
            assert header.key == imp.id


def test_rows_of_a_tenant_that_wants_encryption_never_go_out_without_a_key(tmp_path: Path) -> None:
    with opened(tmp_path, encryption=True) as scene:
        headers = {**scene.headers, "Tus-Resumable": "1.0.0"}
        url = "/v1/tenants/acme/tables/notes/uploads?format=csv"
        place = scene.client.post(url, headers={**headers, "Upload-Length": "5"}).headers["location"]
        [imp] = scene.imports()
        scene.platform.sealing.keyring.keys.drop("acme", imp.id)
        scene.platform.sessions._open.clear()
        assert scene.client.head(place, headers=headers).status_code == 409
        assert scene.platform.appender.records == []
        [imp] = scene.imports()
        assert (imp.state, imp.error["code"]) == ("stopping", "no_data_key")


def test_an_upload_goes_on_after_an_overload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as scene:
        headers = {**scene.headers, "Tus-Resumable": "1.0.0"}
        url = "/v1/tenants/acme/tables/notes/uploads?format=csv"
        place = scene.client.post(url, headers={**headers, "Upload-Length": "5"}).headers["location"]
        scene.platform.sessions._open.clear()
        read = DefinitionStore.read

        def read_in_a_crowd(self: DefinitionStore, fingerprint: str) -> Any:
            scene.turns.take()
            return read(self, fingerprint)

        monkeypatch.setattr(DefinitionStore, "read", read_in_a_crowd)
        assert scene.client.head(place, headers=headers).status_code in (200, 429)
        scene.turns.give_back()
        monkeypatch.setattr(DefinitionStore, "read", read)
        assert scene.client.head(place, headers=headers).status_code == 200
        [imp] = scene.imports()
        assert (imp.state, imp.error) == ("admitted", None)


def test_a_file_that_was_received_is_ended_whatever_the_load(tmp_path: Path) -> None:
    with opened(tmp_path) as scene:
        scene.platform.appender.on_chunk = scene.turns.take
        answer = scene.send()
        assert answer.status_code == 202, answer.text
        [imp] = scene.imports()
        assert imp.state == "processing"


def test_a_change_is_answered_and_audited_whatever_the_load(tmp_path: Path) -> None:
    with opened(tmp_path) as scene:
        scene.platform.on_op = scene.turns.take
        answer = scene.client.post("/v1/tenants/acme/spans/s1", headers=scene.headers)
        scene.turns.give_back()
        assert answer.status_code in (200, 201), answer.text
        assert [row.name for row in scene.platform.store.rows(select(t.spans.c.name))] == ["s1"]
        [entry] = scene.platform.store.rows(select(audit).where(audit.c.action.like("POST%spans%")))
        assert (entry.tenant, entry.status) == ("acme", answer.status_code)


def test_a_change_whose_answer_fails_is_audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as scene:
        monkeypatch.setattr("millrace.api.routes.spans._shown", None)
        answer = scene.client.post("/v1/tenants/acme/spans/s1", headers=scene.headers)
        assert answer.status_code == 500
        [entry] = scene.platform.store.rows(select(audit).where(audit.c.action.like("POST%spans%")))
        assert (entry.tenant, entry.status) == ("acme", 500)


def test_a_full_queue_to_the_broker_does_not_stop_the_event_loop() -> None:
    appender = Appender(NOWHERE, 1 << 20)
    try:
        for size in (300_000, 10_000, 100, 0):
            # To the brim: an op is small.
            while appender.try_append("raw", b"k", bytes(size), 0) is not None:
                pass
        log = OpLog(None, OpSigner(appender, OpKey.new(1, "here", {})), ANY_PARTITION)  # type: ignore[arg-type]

        async def scene() -> float:
            asked = asyncio.create_task(log.submit(BeginSpan("acme", "s")))
            longest, last = 0.0, time.monotonic()
            for _ in range(20):
                await asyncio.sleep(0.01)
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
            assert not asked.done()
            asked.cancel()
            return longest

        thread = threading.Thread(target=lambda: longest.append(asyncio.run(scene())), daemon=True)
        longest: list[float] = []
        thread.start()
        thread.join(5)
        assert longest, "the event loop stands still"
        log.close()
    finally:
        appender._producer.purge()
        appender.close()


class GatedLog:
    """Is full at first. What waits for room gets it late."""

    def __init__(self) -> None:
        self.is_full = True
        self.has_room = threading.Event()
        self.subjects: list[str] = []

    def append(self, topic: str, _key: bytes, value: bytes, partition: int) -> "Future[Appended]":
        assert self.has_room.wait(20)
        return self._take(topic, value, partition)

    def try_append(self, topic: str, _key: bytes, value: bytes, partition: int) -> "Future[Appended] | None":
        return None if self.is_full else self._take(topic, value, partition)

    def _take(self, topic: str, value: bytes, partition: int) -> "Future[Appended]":
        self.subjects.append(read_op(unpack(value)).subject)
        done: Future[Appended] = Future()
        done.set_result(Appended(topic, partition, 0))
        return done


def test_ops_that_had_to_wait_for_room_keep_their_order() -> None:
    gate: Any = GatedLog()
    log = OpLog(None, gate, ANY_PARTITION)  # type: ignore[arg-type]
    log._note_requested = lambda _: None  # type: ignore[method-assign]
    names = [f"s{number}" for number in range(10)]

    async def scene() -> None:
        asked = [asyncio.create_task(log.submit(BeginSpan("acme", name), wait=0.0)) for name in names[:5]]
        await asyncio.sleep(0)
        gate.is_full = False
        asked += [asyncio.create_task(log.submit(BeginSpan("acme", name), wait=0.0)) for name in names[5:]]
        await asyncio.sleep(0)
        gate.has_room.set()
        await asyncio.gather(*asked)

    asyncio.run(scene())
    assert gate.subjects == names
    log.close()
