"""What only the webhook sink must keep: signatures, ids that stay the same, what each answer means, no way round the address
rules."""

from collections.abc import Iterator
from typing import Any

import pytest

from millrace.deliver import delivery as delivering
from millrace.model.errors import Invalid, Unavailable
from millrace.model.sinks import Fault, SinkFailed, SinkTarget
from millrace.outbound.http import Answer
from millrace.sink import webhook
from millrace.sink.connector import Rows, Work
from millrace.sink.webhook import WebhookSink, fault_of
from tests.sinks.test_contract import ID, TEXT, definition, known, rows, stored
from tests.support.row_receiver import REFERENCE, SECRET, RowReceiver, row_receiver
from tests.support.sink_context import open_target


@pytest.fixture
def receiver() -> Iterator[RowReceiver]:
    with row_receiver() as running:
        yield running


@pytest.fixture
def sink(receiver: RowReceiver) -> WebhookSink:
    settings = {"url": receiver.url, "read_url": receiver.read_url, "secret": REFERENCE}
    opened = open_target(SinkTarget("listener", "webhook", True, settings), lambda reference: SECRET)
    assert isinstance(opened, WebhookSink)
    return opened


def test_a_request_is_signed_and_says_what_it_holds(sink: WebhookSink, receiver: RowReceiver) -> None:
    table = definition([ID, TEXT])
    sink.write(Work(table, [rows(table, [(1, "a", 5, False), (2, None, 5, True)])]))
    (request,) = receiver.received
    assert request.is_signed_with(SECRET)
    assert request.headers["millrace-table"] == f"{table.tenant}/notes"
    assert request.headers["millrace-definition"] == table.fingerprint
    assert request.body.splitlines() == [
        b'{"id":1,"text":"a","_version":5,"_import":"imp_1","_row":1,"_deleted":false}',
        b'{"id":2,"text":null,"_version":5,"_import":"imp_1","_row":2,"_deleted":true}',
    ]


def test_the_same_rows_come_under_the_same_id_however_they_are_batched(
    sink: WebhookSink, receiver: RowReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "REQUEST_ROWS", 2)
    table = definition([ID, TEXT])
    chunk = rows(table, [(at, "x", 5, False) for at in range(5)])
    other = rows(table, [(9, "y", 6, False)])
    both = Rows(chunk.chunks + other.chunks, (5, 6), lambda: iter([*chunk.open(), *other.open()]))
    sink.write(Work(table, [chunk]))
    first = {request.id for request in receiver.received}
    assert len(first) == 3
    sink.write(Work(table, [both]))
    again = [request.id for request in receiver.received][3:]
    assert set(again[:3]) | set(again) >= first
    assert len(set(again) - first) == 1
    assert len(stored(sink, table)) == 6


ANSWERS = [
    (200, None), (204, None), (422, Fault.ROW), (400, Fault.TABLE), (401, Fault.TABLE), (404, Fault.TABLE),
    (410, Fault.TABLE), (413, Fault.TABLE), (301, Fault.TABLE), (302, Fault.TABLE), (308, Fault.TABLE),
    (408, Fault.SINK), (425, Fault.SINK), (429, Fault.SINK), (500, Fault.SINK), (502, Fault.SINK), (503, Fault.SINK),
]  # fmt: skip


@pytest.mark.parametrize(("status", "fault"), ANSWERS)
def test_every_answer_has_a_reach(sink: WebhookSink, receiver: RowReceiver, status: int, fault: Fault | None) -> None:
    receiver.answers = [status]
    table = definition([ID, TEXT])
    work = Work(table, [rows(table, [(1, "a", 5, False)])])
    if fault is None:
        sink.write(work)
        return
    with pytest.raises(SinkFailed, match=str(status)) as met:
        sink.write(work)
    assert sink.classify(met.value) is fault
    sink.write(work)
    assert stored(sink, table) == {1: ("a", 5)}


def test_no_status_is_without_a_reach() -> None:
    assert {fault_of(Answer(status)) for status in range(300, 600)} == set(Fault)


def test_a_redirect_is_not_followed(sink: WebhookSink, receiver: RowReceiver) -> None:
    receiver.answers = [(307, {"Location": receiver.url.replace("/rows", "/elsewhere")})]
    with pytest.raises(SinkFailed, match="Redirects are not followed"):
        sink.check()
    assert len(receiver.received) == 1


def test_the_row_that_is_refused_is_set_apart(sink: WebhookSink, receiver: RowReceiver, monkeypatch: Any) -> None:
    table = definition([ID, TEXT])
    answer = receiver.answer
    monkeypatch.setattr(receiver, "answer", lambda request: (422, {}) if b'"bad"' in request.body else answer(request))
    given = [(at, "bad" if at == 3 else "fine", 5, False) for at in range(8)]
    (refused,) = delivering._write(sink, Work(table, [rows(table, given)]))
    assert refused.row == 4
    assert sorted(stored(sink, table)) == [0, 1, 2, 4, 5, 6, 7]


def test_a_receiver_with_another_secret_is_the_table_s_matter(receiver: RowReceiver) -> None:
    settings = {"url": receiver.url, "secret": REFERENCE}
    other = "whsec_b3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXI="
    sink = open_target(SinkTarget("listener", "webhook", True, settings), lambda reference: other)
    with pytest.raises(SinkFailed, match="401") as met:
        sink.check()
    assert sink.classify(met.value) is Fault.TABLE


def test_private_addresses_are_refused(sink: WebhookSink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "_allowed", ())
    with pytest.raises(Invalid, match="not a public address") as met:
        sink.check()
    assert sink.classify(met.value) is Fault.SINK


@pytest.mark.parametrize("url", ["ftp://x/y", "http://user:pw@x/", "http://2130706433/", "http://x/ y"])
def test_what_is_no_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(Invalid):
        open_target(
            SinkTarget("listener", "webhook", True, {"url": url, "secret": REFERENCE}), lambda reference: SECRET
        )


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (Unavailable("silent", code="timeout"), Fault.SINK),
        (ConnectionResetError(), Fault.SINK),
        (TimeoutError(), Fault.SINK),
        (ValueError("not JSON"), Fault.ROW),
        (KeyError("a bug of ours"), Fault.TABLE),
    ],
)
def test_other_errors_have_a_reach_too(sink: WebhookSink, error: BaseException, fault: Fault) -> None:
    assert sink.classify(error) is fault


def test_a_floor_is_told_once(sink: WebhookSink, receiver: RowReceiver) -> None:
    table = definition([ID, TEXT], floor=7)
    for _ in range(2):
        sink.prepare(table, known(table))
    sink.write(Work(table, [rows(table, [(1, "under it", 7, False), (2, "above", 8, False)])], floor=7))
    assert [request.headers["millrace-floor"] for request in receiver.received] == ["7", "7"]
    assert stored(sink, table) == {2: ("above", 8)}
