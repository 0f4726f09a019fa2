"""A home in which an older Millrace parked deliveries as files: all of it is in the store after one start."""

from dataclasses import asdict
from pathlib import Path

import orjson
import pytest

from millrace.deliver.queue import Queue
from millrace.exchange.home import Home
from millrace.exchange.parked_files import import_parked_files
from millrace.exchange.places import Places
from millrace.lake.sidecar import StagedChunk, StagedFile
from millrace.model.queues import Backfill, Backlog, Member, QueueKey, QueueState, Waiver
from millrace.model.sinks import SinkTarget
from millrace.sink.contract import StagedGroup
from tests.support.queues import queues_of

KEY = QueueKey("postgres", "acme", "notes", "warehouse")
MEMBER = Member(SinkTarget("warehouse", "postgres", True, {"host": "h"}), "abc", (1, 2), (1, 2), None, Backfill())
STATE = QueueState(parked_since=5.0, reason="away", fault="sink", tries=3, next_try=9.0, last_version=8)
GROUP = StagedGroup(
    "acme",
    "notes",
    "abc",
    StagedFile("rows.parquet", 4, 1, None, (StagedChunk("imp_1/0", 0, 1, 30),), deleted_keys="sub/keys"),
    (("imp_1", 0),),
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """As the last release left it."""
    folder = tmp_path.joinpath("parked", *KEY)
    folder.mkdir(parents=True)
    (folder / "rows.parquet").write_bytes(b"rows")
    (folder / "sub+keys").write_bytes(b"keys!")
    (folder / "copy.parquet").write_bytes(b"copied")
    (folder / "x.dead").write_bytes(b"dead")
    group = {**asdict(GROUP), "file": asdict(GROUP.file)}  # type: ignore[arg-type]
    copied = {**group, "file": {**group["file"], "path": "copy.parquet", "deleted_keys": None}, "chunks": []}
    items = {
        f"{30:020d}-abc": {"group": group, "version": 30, "is_backfill": False},
        f"{0:020d}-x": {"group": copied, "version": 77, "is_backfill": True, "dead": "x.dead", "floor": 5},
    }
    for name, item in items.items():
        (folder / f"{name}.item.json").write_bytes(orjson.dumps(item))
    (folder / "member.json").write_bytes(orjson.dumps(asdict(MEMBER)))
    (folder / "state.json").write_bytes(orjson.dumps(asdict(STATE)))
    (folder / "told.json").write_bytes(orjson.dumps({"parked_since": 5.0}))
    (folder / "waived").write_text("20 imp_0")
    (folder / "resume").touch()
    return Home(tmp_path)


def assert_imported(home: Home) -> None:
    queues = queues_of(home)
    record = queues.get(KEY)
    assert record is not None
    assert (record.state, record.member, record.waiver) == (STATE, MEMBER, Waiver(20, "imp_0"))
    assert record.announced == {"parked_since": 5.0}
    assert queues.backlog(KEY) == Backlog(2, 15, 30)
    queue = Queue(Places(home), queues, KEY)
    first, second = queue.items()
    assert (first.version, first.is_backfill, first.dead, first.floor) == (77, True, "x.dead", 5)
    assert (second.name, second.group, second.version) == ((30, "abc"), GROUP, 30)
    assert sorted(path.name for path in queue.pins.folder.iterdir()) == [
        "copy.parquet",
        "rows.parquet",
        "sub+keys",
        "x.dead",
    ]


def test_nothing_of_it_is_lost(home: Home) -> None:
    queues = queues_of(home)
    import_parked_files(Places(home), queues)
    assert_imported(home)
    assert queues.take_resumes([KEY]) == {KEY}
    import_parked_files(Places(home), queues)
    assert_imported(home)


def test_a_start_that_was_killed_is_made_good_by_the_next(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    queues = queues_of(home)

    def killed(_: Path, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            import_parked_files(Places(home), queues)
    import_parked_files(Places(home), queues)
    assert_imported(home)


def test_an_order_that_came_before_the_import_holds(home: Home) -> None:
    queues = queues_of(home)
    queues.waive(KEY, 50)
    import_parked_files(Places(home), queues)
    record = queues.get(KEY)
    assert record is not None
    assert record.waiver.below == 50
    assert (record.state, record.member) == (STATE, MEMBER)


def test_files_that_a_power_cut_emptied_keep_nothing_else_back(home: Home) -> None:
    queues, folder = queues_of(home), home.queue(*KEY)
    for name in (f"{40:020d}-cut.item.json", "waived"):
        (folder / name).write_bytes(b"")
    import_parked_files(Places(home), queues)
    record = queues.get(KEY)
    assert record is not None
    assert (record.member, record.waiver) == (MEMBER, Waiver())
    assert queues.backlog(KEY).waiting == 2


def test_a_home_without_files_stays_as_it_is(tmp_path: Path) -> None:
    queues = queues_of(Home(tmp_path))
    import_parked_files(Places(Home(tmp_path)), queues)
    assert queues.all() == []
