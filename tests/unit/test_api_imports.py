"""What is told of imports: found by the state that is shown, how far behind the sinks are, and when it will be over."""

import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, update
from starlette.testclient import TestClient

from millrace.api.documents.imports import STALLED_AFTER_US
from millrace.declare.table import parse_table
from millrace.exchange.queues import ParkedRow, Queues
from millrace.model.imports import ADMITTED, PROCESSING, RECEIVING, REQUESTED, STALLED, Counts
from millrace.model.names import new_id
from millrace.model.ops.imports import BeginImport, CancelImport, EndImport
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from millrace.model.queues import QueueState, own_queue
from millrace.model.sinks import ERROR_STORE
from millrace.store import tables as t
from millrace.upload.gateway import Resume
from tests.support.platform import record
from tests.support.whole_app import TOKEN, AppPlatform, whole_app

MIB = 1 << 20


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[tuple[AppPlatform, TestClient]]:
    with whole_app(tmp_path) as (platform, client):
        platform.apply(DefineTenant("acme", agreement={}))
        declaration = parse_table(record("notes", ("id", "long"), key=("id",))).to_dict()
        platform.apply(DefineTable("acme", "notes", declaration=declaration))
        yield platform, client


def begin(platform: AppPlatform) -> str:
    return str(platform.apply(BeginImport("acme", "notes", id=new_id("imp"))).result.import_id)


def keep_upload(platform: AppPlatform, import_id: str, length: int | None, confirmed: Resume | None) -> None:
    row = {"import_id": import_id, "length": length, "confirmed": asdict(confirmed) if confirmed else None}
    with platform.store.write() as connection:
        connection.execute(insert(t.uploads).values(**row, seen_us=1))


def change(platform: AppPlatform, import_id: str, **columns: Any) -> None:
    with platform.store.write() as connection:
        connection.execute(update(t.imports).where(t.imports.c.id == import_id).values(columns))


def ask(client: TestClient, path: str, **params: str) -> Any:
    answer = client.get(path, params=params, headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200
    return answer.json()


def request(platform: AppPlatform, subject: str, *, applied: bool) -> str:
    asked = {"id": new_id("imp"), "kind": BeginImport.KIND, "tenant": "acme", "subject": subject, "applied": applied}
    with platform.store.write() as connection:
        connection.execute(insert(t.requests).values(**asked, requested_us=1))
    return str(asked["id"])


def test_imports_are_found_by_the_state_that_is_shown(scene: tuple[AppPlatform, TestClient]) -> None:
    platform, client = scene
    made = {state: begin(platform) for state in (ADMITTED, RECEIVING, PROCESSING, STALLED)}
    keep_upload(platform, made[ADMITTED], 100, None)
    keep_upload(platform, made[RECEIVING], 100, Resume(chunks=1))
    change(platform, made[PROCESSING], state=PROCESSING)
    change(platform, made[STALLED], state=PROCESSING, touched_us=time.time_ns() // 1000 - 2 * STALLED_AFTER_US)
    made[REQUESTED] = request(platform, "notes", applied=False)
    request(platform, "notes", applied=True)
    request(platform, "others", applied=False)
    for state, import_id in made.items():
        found = ask(client, "/v1/imports", state=state, table="notes")["items"]
        assert [(one["id"], one["state"]) for one in found] == [(import_id, state)]


def test_an_import_tells_how_far_its_sinks_are_behind_and_when_it_will_end(
    scene: tuple[AppPlatform, TestClient],
) -> None:
    platform, client = scene
    import_id = begin(platform)
    path, begun_us = f"/v1/imports/{import_id}", time.time_ns() // 1000 - 60_000_000
    change(platform, import_id, counts=asdict(Counts(chunks=3)), durable={"delta": 2}, begun_us=begun_us)
    keep_upload(platform, import_id, 10 * MIB, Resume(chunks=4, cutter={"offset": 5 * MIB}))
    told = ask(client, path)
    assert (told["chunks"], told["lag"]) == ({"sent": 4, "judged": 3}, {"chunks": 2})
    assert told["eta_seconds"] == pytest.approx(60 * (8 - 2) / 2, rel=0.1), "eight chunks in all, two are done"
    platform.apply(EndImport("acme", import_id, chunks=6, rows=6, bytes=6))
    told = ask(client, path)
    assert (told["lag"], told["eta_seconds"]) == ({"chunks": 4}, pytest.approx(120, rel=0.1))
    platform.apply(CancelImport("acme", import_id))
    assert ask(client, path)["eta_seconds"] is None


def test_nobody_guesses_the_end_of_a_file_whose_length_says_nothing(scene: tuple[AppPlatform, TestClient]) -> None:
    platform, client = scene
    compressed, endless = begin(platform), begin(platform)
    keep_upload(platform, compressed, 10 * MIB, Resume(chunks=4))
    keep_upload(platform, endless, None, Resume(chunks=4, cutter={"offset": 5 * MIB}))
    for import_id in (compressed, endless):
        change(platform, import_id, counts=asdict(Counts(chunks=3)), durable={"delta": 2})
        assert ask(client, f"/v1/imports/{import_id}")["eta_seconds"] is None


def test_rejected_rows_that_wait_for_their_error_store_are_told(scene: tuple[AppPlatform, TestClient]) -> None:
    platform, client = scene
    import_id = begin(platform)
    change(platform, import_id, state=PROCESSING, counts=asdict(Counts(chunks=3, read=30, accepted=20, rejected=10)))
    with platform.store.write() as connection:
        for number, rejected in enumerate((5, 0, 5)):
            counts = {"rows": 10, "accepted": 10 - rejected, "rejected": rejected, "ignored": 0, "checksum": 0}
            connection.execute(insert(t.chunks).values(import_id=import_id, number=number, **counts))
    path = f"/v1/imports/{import_id}"
    assert ask(client, path)["parked_rejected_chunks"] == 0, "on their way"
    queues = Queues(platform.store)
    key = own_queue(ERROR_STORE, "acme", "notes")
    queues.park([ParkedRow(key, 7, "x", 7, 0, "{}")])
    queues.finish(key, state=QueueState(parked_since=5.0, reason="it is away"))
    shown = ask(client, path)
    assert (shown["parked_rejected_chunks"], shown["sinks"]["delta"]["parked_chunks"]) == (2, 0)
    change(platform, import_id, durable={ERROR_STORE: 1})
    assert ask(client, path)["parked_rejected_chunks"] == 1
    change(platform, import_id, state="completed", ended_us=1)
    assert ask(client, path)["parked_rejected_chunks"] == 0
