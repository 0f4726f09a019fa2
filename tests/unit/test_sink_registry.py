"""What a table asks of its sinks is checked when it is declared; parked rows outlive whatever happens to the table."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from millrace.declare.table import parse_table
from millrace.exchange.home import Home
from millrace.exchange.places import places_below
from millrace.lake.sidecar import StagedChunk, StagedFile
from millrace.model.errors import Invalid
from millrace.model.queues import Backlog, QueueKey
from millrace.sink import registry
from millrace.sink.cassandra.settings import CassandraSettings
from millrace.sink.context import SinkContext
from millrace.sink.contract import StagedGroup
from millrace.sink.registry import OURS, settings_class
from tests.support.queues import put, queue_at, queues_of

KEY = QueueKey("postgres", "acme", "notes", "warehouse")
CASSANDRA = {"kind": "cassandra", "hosts": ["127.0.0.1"]}


def table(sinks: list[Any], **more: Any) -> Any:
    schema = {"type": "record", "name": "notes", "fields": [{"name": "id", "type": "long"}]}
    return parse_table({"schema": schema, "primary_key": ["id"], "sinks": sinks, **more})


def refuse_unable(declared: Any) -> None:
    registry.refuse_unable(declared, SinkContext(places_below(Path("/nowhere")), tenant="acme"))


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(Invalid, match="tape"):
        refuse_unable(table(["delta", "tape"]))


def test_a_policy_that_a_sink_cannot_honour_is_refused_in_words() -> None:
    refuse_unable(table(["delta", CASSANDRA]))
    with pytest.raises(Invalid, match=r"cassandra.*as a whole"):
        refuse_unable(table(["delta", CASSANDRA], publish="atomic"))


def test_a_kind_without_its_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "connector_class", registry.connector_class.__wrapped__)
    monkeypatch.setattr(CassandraSettings, "connector", "millrace.sink.not_installed:CassandraSink")
    with pytest.raises(Invalid, match="driver") as refused:
        refuse_unable(table(["delta", CASSANDRA]))
    assert (refused.value.code, refused.value.remedy) == ("no_driver", "pip install 'millrace[cassandra]'")


@pytest.mark.parametrize("address", ["http://[bad/", "http://h:99999/", "http://h:x/"])
def test_an_address_that_cannot_be_read_is_refused_in_words(address: str) -> None:
    sinks = [
        {"kind": "webhook", "url": address, "secret": "env:MILLRACE_SECRET_ACME_X"},
        {"kind": "files", "path": address.replace("http", "webhdfs"), "mode": "changelog"},
        {"kind": "bigquery", "project": "p", "endpoint": address},
        {"kind": "delta-remote", "location": address.replace("http", "webhdfs")},
    ]
    for sink in sinks:
        with pytest.raises(Invalid, match=r"has \w+ = .*SCHEME://HOST") as refused:
            refuse_unable(table(["delta", sink]))
        assert refused.value.code == "bad_sink"


def test_a_setting_without_a_value_is_refused() -> None:
    """`password:` with nothing behind it must not mean that there is no password."""
    postgres = {"kind": "postgres", "host": "db.example", "database": "d", "user": "u", "password": None}
    with pytest.raises(Invalid, match="password") as refused:
        refuse_unable(table(["delta", postgres]))
    assert refused.value.code == "bad_sink"
    with pytest.raises(Invalid, match=r"hosts = \[\]\. Give at least one"):
        refuse_unable(table(["delta", {**CASSANDRA, "hosts": []}]))


def test_every_extra_can_be_installed() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = {settings_class(kind).extra for kind in OURS} - {None}
    assert extras
    assert extras <= project["optional-dependencies"].keys()


def group(number: int, version: int, **more: Any) -> StagedGroup:
    chunk = StagedChunk(f"imp_1/{number}", 0, 1, version)
    file = StagedFile(f"rows-{number}.parquet", 4, 1, None, (chunk,))
    return StagedGroup("acme", "notes", "abc", file, (("imp_1", number),), **more)


def staged(folder: Path, number: int) -> Path:
    path = folder / f"rows-{number}.parquet"
    path.write_bytes(b"rows")
    return path


def test_what_is_parked_leaves_by_version_and_outlives_its_table(tmp_path: Path) -> None:
    home = Home(tmp_path)
    queue = queue_at(home, *KEY)
    for number, version in ((1, 30), (0, 20), (2, 10)):
        staged(tmp_path, number)
        for _ in range(2):
            put(queue, group(number, version), tmp_path)
        (tmp_path / f"rows-{number}.parquet").unlink()
    items = queue.items()
    assert [item.version for item in items] == [10, 20, 30]
    assert queue.pins.path("rows-0.parquet").read_bytes() == b"rows"
    queue.done(items[:2])
    assert queues_of(home).backlog(KEY) == Backlog(1, 4, 30)
    assert not queue.pins.path("rows-0.parquet").exists()


def test_an_empty_queue_keeps_no_pins_not_even_those_of_a_killed_process(tmp_path: Path) -> None:
    queue = queue_at(Home(tmp_path), *KEY)
    for number in (0, 1):
        staged(tmp_path, number)
        put(queue, group(number, 10 + number), tmp_path)
    queue.pins.pin(staged(tmp_path, 7), "rows-7.parquet")
    first, second = queue.items()
    queue.done([first])
    assert queue.pins.path("rows-7.parquet").exists(), "something waits: pins are released by name"
    assert queue.pins.path("rows-1.parquet").exists()
    queue.done([second])
    assert list(queue.pins.folder.iterdir()) == []


def test_rows_of_an_atomic_import_wait_for_its_publication(tmp_path: Path) -> None:
    queue = queue_at(Home(tmp_path), *KEY)
    staged(tmp_path, 0)
    put(queue, group(0, 10, publish="atomic"), tmp_path)
    assert queue.items() == []
    put(queue, StagedGroup("acme", "notes", "abc", None, (("imp_1", 1),), "publish", 11), tmp_path)
    assert [item.version for item in queue.items()] == [10, 11]


def test_what_was_waived_is_known_by_its_version(tmp_path: Path) -> None:
    queues = queues_of(Home(tmp_path))
    assert queues.get(KEY) is None
    queues.waive(KEY, 99)
    record = queues.get(KEY)
    assert record is not None
    assert record.waiver.below == 99
