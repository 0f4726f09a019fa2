"""What is parked is told when it changes, counts against a quota, and is forgotten when it is drained."""

from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from millrace.api.jobs import sink_watch
from millrace.api.jobs.refused_secrets import note_foreign_secret
from millrace.api.jobs.sink_watch import SinkWatch
from millrace.auth.audit import Audit
from millrace.exchange.home import Home
from millrace.exchange.places import Places
from millrace.exchange.queues import ParkedRow
from millrace.model.errors import Exceeded
from millrace.model.ops.tables import NoteSink, WaiveSink
from millrace.model.queues import Backfill, Member, QueueKey, QueueState, own_queue
from millrace.model.sinks import SinkTarget
from millrace.settings import Settings
from millrace.sink.context import SinkContext
from millrace.store.tables import audit, queues
from tests.support.queues import queues_of


class Watched:
    def __init__(self, root: Path, limit: int = 1000) -> None:
        self.home = Home(root)
        self.told: list[tuple[str, str, dict[str, Any]]] = []
        self.awaited = False
        self.queues = queues_of(self.home)
        self.purged = False
        self.audit = Audit(self.queues._store)
        context = SinkContext.of(Settings(), Places(self.home))
        self.watch = SinkWatch(
            Places(self.home),
            self.queues,
            lambda _: limit,
            lambda *_: self.awaited,
            self._append,
            lambda *_: self.purged,
            partial(note_foreign_secret, self.audit, context),
        )

    def _append(self, op: NoteSink | WaiveSink) -> "Future[None]":
        what, data = (op.what, op.data) if isinstance(op, NoteSink) else ("waived", {"sink": op.sink})
        self.told.append((what, f"{op.tenant}/{op.table}", data))
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def queue(self, table: str = "notes", tenant: str = "acme", **more: Any) -> QueueKey:
        """A queue whose target is a member of the roster."""
        key = QueueKey("postgres", tenant, table, "warehouse")
        self.queues.change_members("postgres", tenant, table, lambda _: {"warehouse": member(**more)})
        return key

    def put(self, key: QueueKey, size: int = 0) -> None:
        self.queues.park([ParkedRow(key, 7, "x", 7, size, "{}")])

    def park(self, key: QueueKey, size: int = 0) -> None:
        self.put(key, size)
        self.queues.finish(key, state=QueueState(parked_since=5.0, reason="it is away"))

    def heal(self, key: QueueKey) -> None:
        self.queues.finish(key, state=QueueState())


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def member(**more: Any) -> Member:
    return replace(Member(SinkTarget("warehouse", "postgres"), "abc", (1, 2), (1, 2)), **more)


def test_a_sink_that_stops_and_goes_on_is_told_of_once_each(watched: Watched) -> None:
    queue = watched.queue()
    watched.watch.look()
    watched.park(queue)
    for _ in range(3):
        watched.watch.look()
    Watched(watched.home.root).watch.look()
    watched.heal(queue)
    watched.watch.look()
    told = [(what, table) for what, table, _ in watched.told]
    assert told == [("parked", "acme/notes"), ("resumed", "acme/notes")]
    assert watched.told[0][2]["reason"] == "it is away"


def test_a_back_fill_says_where_its_rows_come_from(watched: Watched) -> None:
    watched.queue(backfill=Backfill())
    watched.watch.look()
    watched.queue(backfill=Backfill("done", "delta", 42))
    watched.watch.look()
    assert [(what, data["state"], data["source"], data["rows"]) for what, _, data in watched.told] == [
        ("backfill", "wanted", None, 0),
        ("backfill", "done", "delta", 42),
    ]


def test_over_the_quota_the_tables_that_are_stuck_take_no_imports(watched: Watched) -> None:
    watched.park(watched.queue("stuck"), 2000)
    watched.queue("fine")
    watched.park(watched.queue("small", "other"), 10)
    watched.watch.look()
    with pytest.raises(Exceeded, match=r"may have 1,000 bytes that wait.*It has 2,000") as refused:
        watched.watch.refuse_if_full("acme", "stuck")
    assert refused.value.facts == {"quota": "parked_bytes", "limit": "1000", "used": "2000"}
    for tenant, table in (("acme", "fine"), ("other", "small"), ("acme", "nowhere")):
        watched.watch.refuse_if_full(tenant, table)
    watched.heal(watched.queue("stuck"))
    watched.watch.look()
    watched.watch.refuse_if_full("acme", "stuck")


def test_a_sink_that_was_removed_is_forgotten_once_nobody_waits_for_it(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_watch, "SETTLE_SECONDS", 0.0)
    key = watched.queue()
    watched.queue(removed=(1, 3))
    watched.put(key)
    pins = Places(watched.home).pins(key)
    pins.write("rows.parquet", b"rows")
    watched.watch.look()
    assert watched.queues.get(key), "something is still parked for it"
    watched.queues.finish(key, [(7, "x")])
    watched.awaited = True
    watched.watch.look()
    assert watched.queues.get(key), "an import may still bring something"
    watched.awaited = False
    watched.watch.look()
    assert watched.queues.get(key) is None
    assert not pins.folder.exists()
    assert [what for what, _, _ in watched.told] == ["drained"]


def test_what_is_pinned_while_a_queue_is_forgotten_stays(watched: Watched) -> None:
    """A courier pins a batch of files before it parks the deliveries: the queue looks empty meanwhile."""
    key = watched.queue()
    watched.queue(removed=(1, 3))
    with watched.queues._store.write() as connection:
        connection.execute(update(queues).values(changed_us=0))
    staged, pins = watched.home.root / "staged.parquet", Places(watched.home).pins(key)
    staged.write_bytes(b"rows")
    pins.pin(staged, "rows.parquet")
    watched.watch.look()
    assert watched.queues.get(key) is None
    assert pins.path("rows.parquet").read_bytes() == b"rows"


def test_tables_that_cannot_be_written_are_listed_and_given_up_once_they_are_purged(watched: Watched) -> None:
    key = own_queue("delta", "acme", "notes")
    watched.park(key)
    watched.park(watched.queue("elsewhere"))
    watched.watch.look()
    (parked,) = watched.watch.parked_tables()
    assert (parked.tenant, parked.table, parked.sink, parked.reason) == ("acme", "notes", "delta", "it is away")
    assert "waived" not in [what for what, _, _ in watched.told]
    watched.purged = True
    for _ in range(3):
        watched.watch.look()
    assert [data["sink"] for what, _, data in watched.told if what == "waived"] == ["delta"], "once, and no other sink"
    record = watched.queues.get(key)
    assert record is not None
    assert record.waiver.below > 7
    assert watched.queues.take_resumes([key]) == {key}
    watched.heal(key)
    watched.watch.look()
    assert watched.watch.parked_tables() == []


@pytest.mark.parametrize(("owner", "entries"), [("ACME", 0), ("OTHER", 1)])
def test_a_sink_that_stops_for_somebody_else_s_secret_has_one_audit_entry(
    watched: Watched, owner: str, entries: int
) -> None:
    """The secret was shared when the table was declared, so no request was refused."""
    place = {"host": "127.0.0.1", "database": "d", "user": "u", "password": f"env:MILLRACE_SECRET_{owner}_DB"}
    key = watched.queue(target=SinkTarget("warehouse", "postgres", settings=place))
    for reason in ("it is away", "it is still away"):
        watched.park(key)
        watched.queues.finish(key, state=QueueState(parked_since=5.0, reason=reason))
        watched.watch.look()
    with watched.queues._store.read() as connection:
        found = connection.execute(select(audit)).all()
    subject = f"acme/notes/warehouse env:MILLRACE_SECRET_{owner}_DB"
    assert [(one.action, one.subject, one.tenant, one.who, one.status) for one in found] == [
        ("use of a secret", subject, "acme", "platform", 403)
    ] * entries
