"""Streamed rows in the table log: sealed there, read once, unreadable when their time is over or their tenant is erased."""

import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard
from sqlalchemy import select
from starlette.testclient import TestClient

from millrace.account import log_key_expiry
from millrace.account.log_key_expiry import LogKeyExpiry
from millrace.control.controller import Controller, opened_append
from millrace.exchange.home import Home
from millrace.exchange.log_keys import LogKeys
from millrace.model.imports import APPEND, Counts
from millrace.model.ops import Applied, Op, read_op
from millrace.model.ops.base import Unreadable
from millrace.model.ops.imports import SettleImport
from millrace.model.ops.rows import Append
from millrace.model.ops.tenants import DefineTenant
from millrace.store import tables as t
from millrace.store.records import advance, positions
from millrace.wire.envelope import pack, unpack
from millrace.wire.topics import TABLE_OPS
from tests.support.whole_app import TOKEN, AppPlatform, whole_app

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
SCHEMA = {"type": "record", "name": "notes", "fields": [{"name": "id", "type": "long"}]}
ROWS = b'{"id": 1234567890}\n' * 3


class Logging(AppPlatform):
    """Keeps each op as it is in Kafka."""

    logged: list[bytes]

    async def applied(self, op: Op[Any], **_: Any) -> Any:
        return await super().applied(op)

    async def submit(self, op: Op[Any]) -> Applied:
        return await super().submit(self._through(op))

    def _through(self, op: Op[Any]) -> Op[Any]:
        record = pack(op.to_dict()) if op.id else b""
        self.logged = [*getattr(self, "logged", []), record]
        return read_op(unpack(record)) if record else op


def declared(platform: Logging, client: TestClient) -> None:
    platform.apply(DefineTenant("acme", agreement={}))
    document = {"schema": SCHEMA, "primary_key": ["id"]}
    assert client.put("/v1/tenants/acme/tables/notes", json=document, headers=HEADERS).status_code == 200


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[tuple[Logging, TestClient]]:
    with whole_app(tmp_path, Logging) as (platform, client):
        declared(platform, client)
        yield platform, client


def send(client: TestClient) -> None:
    answer = client.post("/v1/tenants/acme/tables/notes/rows", content=ROWS, headers=HEADERS)
    assert answer.status_code == 202, answer.text


def logged_append(platform: Logging) -> Append:
    (found,) = (op for record in platform.logged if record and isinstance(op := read_op(unpack(record)), Append))
    return found


def chunks(platform: AppPlatform) -> list[bytes]:
    with platform.store.read() as connection:
        return [row.record for row in connection.execute(select(t.outbox))]


def decompressed(payload: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(payload)


def test_rows_are_sealed_in_the_log_and_plain_on_their_way_to_the_table(scene: tuple[Logging, TestClient]) -> None:
    platform, client = scene
    send(client)
    op = logged_append(platform)
    assert op.log_key
    assert op.rows == 3
    with pytest.raises(Exception, match=r"[Zz]std|frame|[Uu]nknown"):
        decompressed(b64decode(op.payload))
    opened = opened_append(op, platform.exchange.log_keys)
    assert decompressed(b64decode(opened.payload)) == ROWS
    assert [chunk for chunk in chunks(platform) if b64decode(opened.payload) in chunk]


def test_an_old_op_that_is_read_again_still_counts_but_has_no_rows(scene: tuple[Logging, TestClient]) -> None:
    """As when the control store is rebuilt from the log: what comes later must find the sender where it was."""
    platform, client = scene
    send(client)
    op = logged_append(platform)
    keys = platform.exchange.log_keys
    keys.forget(keys.before(datetime.now(UTC) + timedelta(days=1)))
    again = opened_append(op, platform.exchange.log_keys)
    assert (again.payload, again.log_key) == ("", None)
    with platform.store.write() as connection:
        connection.execute(t.outbox.delete())
    applied = platform.apply(replace(op, id=op.id[:-1] + ("0" if op.id[-1] != "0" else "1")))
    assert applied.refusal is None
    assert applied.result.import_id
    assert chunks(platform) == []


def test_an_erased_tenant_s_rows_cannot_be_read_in_the_log(scene: tuple[Logging, TestClient]) -> None:
    platform, client = scene
    send(client)
    op = logged_append(platform)
    platform.exchange.tenant_files.remove("acme")
    assert opened_append(op, platform.exchange.log_keys).payload == ""
    send(client)
    newest = [read_op(unpack(record)) for record in platform.logged if record][-1]
    assert opened_append(newest, platform.exchange.log_keys).payload, "a new tenant of that name has new keys"


def test_keys_are_private_and_of_one_tenant_and_table(tmp_path: Path) -> None:
    keys = LogKeys(Home(tmp_path))
    seal = keys.seal("acme", "notes", "imp_1")
    (path,) = tmp_path.glob("log-keys/acme/*")
    assert path.stat().st_mode & 0o777 == 0o600
    assert keys.opening("other", "notes", "imp_1", seal.key) is None
    moved = keys.opening("acme", "orders", "imp_1", seal.key)
    assert moved is not None
    with pytest.raises(Exception, match="not what was sealed"):
        moved.open(seal.close(b"rows", "log"), "log")


class Aged:
    """A key of long ago, and one of today."""

    def __init__(self, platform: Logging, monkeypatch: pytest.MonkeyPatch) -> None:
        self.platform, self.end = platform, 10
        keys = platform.exchange.log_keys
        keys.seal("acme", "notes", "imp_1")
        (self.new,) = keys.home.log_keys.glob("acme/*")
        self.day = datetime.now(UTC) - timedelta(days=9)
        self.old = self.new.with_name(f"{self.day:%Y%m%d}_0a0b0c0d")
        self.old.write_bytes(self.new.read_bytes())
        monkeypatch.setattr(log_key_expiry, "end_offsets", lambda *_: {0: (0, self.end)})
        cluster: Any = None
        self.expiry = LogKeyExpiry(platform.store, cluster, keys)

    def applied(self, offset: int) -> None:
        with self.platform.store.write() as connection:
            advance(connection, TABLE_OPS, positions(connection, TABLE_OPS), {0: offset})

    def begun(self, at: datetime) -> None:
        with self.platform.store.write() as connection:
            connection.execute(t.imports.update().values(state="processing", begun_us=int(at.timestamp() * 1e6)))


@pytest.fixture
def aged(scene: tuple[Logging, TestClient], monkeypatch: pytest.MonkeyPatch) -> Aged:
    platform, client = scene
    send(client)
    with platform.store.write() as connection:
        connection.execute(t.imports.update().values(state="completed"))
    return Aged(platform, monkeypatch)


def test_an_old_key_goes_once_every_op_that_was_in_the_log_is_applied(aged: Aged) -> None:
    """The name of a key is what a clock said, so the ops that it sealed may be new."""
    aged.applied(10)
    aged.expiry.look()
    assert aged.old.exists(), "an op that it sealed may be on its way to the log"
    aged.end = 20
    aged.expiry.look()
    assert not aged.old.exists()
    assert aged.new.exists()


def test_an_old_key_stays_while_an_op_is_not_applied(aged: Aged) -> None:
    aged.applied(9)
    for _ in range(3):
        aged.expiry.look()
    assert aged.old.exists()
    aged.applied(10)
    aged.expiry.look()
    assert not aged.old.exists()


@pytest.mark.parametrize(("days", "stays"), [(-1, True), (0, True), (1, True), (5, False)])
def test_an_old_key_stays_until_what_its_tenant_sent_is_delivered(aged: Aged, days: int, stays: bool) -> None:
    """Rows that are parked at a broken table must be sent again when the control store is rebuilt."""
    aged.applied(10)
    aged.begun(aged.day + timedelta(days=days))
    for _ in range(2):
        aged.expiry.look()
    assert aged.old.exists() is stays


def test_another_tenant_s_undelivered_rows_keep_no_key(aged: Aged) -> None:
    aged.applied(10)
    aged.begun(aged.day)
    other = aged.old.parents[1] / "other" / aged.old.name
    other.parent.mkdir()
    other.write_bytes(aged.old.read_bytes())
    for _ in range(2):
        aged.expiry.look()
    assert (aged.old.exists(), other.exists()) == (True, False)


def test_an_old_key_stays_while_an_op_of_its_tenant_waits_for_its_turn(aged: Aged) -> None:
    aged.applied(10)
    with aged.platform.store.write() as connection:
        connection.execute(t.waiting.insert().values(tenant="acme", table_name="notes", op_id="op_1", op={}))
    for _ in range(2):
        aged.expiry.look()
    assert aged.old.exists()


def test_rows_that_are_not_what_was_sealed_are_refused_and_block_nobody(scene: tuple[Logging, TestClient]) -> None:
    platform, client = scene
    send(client)
    op = logged_append(platform)
    controller: Any = object.__new__(Controller)
    controller._log_keys = platform.exchange.log_keys
    now: Any = SimpleNamespace(at_ms=time.time_ns() // 1_000_000)
    assert controller._opened(op, now).payload
    damaged = controller._opened(replace(op, payload=b64encode(b"x" * 100).decode()), now)
    assert isinstance(damaged, Unreadable)


def state_of(platform: Logging) -> dict[str, Any]:
    """All that the log decides, without the moments: a test has no log that keeps them."""
    names = (
        "id",
        "tenant",
        "table_name",
        "state",
        "kind",
        "sinks",
        "options",
        "counts",
        "durable",
        "announced",
        "error",
    )
    with platform.store.read() as connection:
        wanted = select(*(t.imports.c[name] for name in names)).where(t.imports.c.kind == APPEND)
        imports = connection.execute(wanted).all()
        streams = connection.execute(select(t.streams.c.stream, t.streams.c.seq)).all()
    return {"imports": [tuple(row) for row in imports], "streams": sorted(tuple(row) for row in streams)}


def test_a_store_that_is_rebuilt_without_the_key_is_the_same(tmp_path: Path) -> None:
    settle = {"counts": Counts(chunks=1, read=3, accepted=3), "durable": {"delta": 1}}
    with whole_app(tmp_path / "first", Logging) as (platform, client):
        declared(platform, client)
        send(client)
        op = logged_append(platform)
        platform.apply(SettleImport("acme", op.id, **settle))
        before = state_of(platform)
    with whole_app(tmp_path / "rebuilt", Logging) as (platform, client):
        declared(platform, client)
        platform.apply(op)
        assert state_of(platform) != before
        platform.apply(SettleImport("acme", op.id, **settle))
        assert state_of(platform) == before
        assert [imp[3] for imp in before["imports"]] == ["completed"]
