"""Hostile Delta tables in a tenant's own bucket, queried through a real server process and written by the sink's own code:
each gets a reason that names the table and the file, and nobody's memory grows."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from millrace.lake.bounds import OURS, TENANTS
from millrace.lake.remote import RemoteStore
from millrace.lake.table import LakeTable
from millrace.model.errors import MillraceError
from millrace.outbound.s3 import S3Objects
from millrace.outbound.s3_signing import S3Keys
from tests.support.hostile_bucket import HostileBucket, hostile_bucket
from tests.support.hostile_files import DECLARATION
from tests.support.hostile_tables import HostileTable, add, first, hostile_tables, own_checkpoint
from tests.support.lake import KEYED
from tests.support.server_process import Answer, ServerProcess, server_process, watched

MOST_MB = 300
PLACE = "lake/acme/notes"
# Some of them, where the log is decoded.
DELIVERED = (
    "checkpoint: 150 MiB",
    "checkpoint: long",
    "checkpoint: 60,000",
    "checkpoint: cut after 9",
    "checkpoint: 70 MiB",
    "commit: a line",
    "commit: 12 MiB",
    "commit: 60,000 files",
    "commit: many small lists",
    "commit: a negative size",
)
_MIB = 1 << 20


@pytest.fixture(scope="module")
def bucket() -> Iterator[HostileBucket]:
    with hostile_bucket(PLACE) as bucket:
        yield bucket


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, bucket: HostileBucket) -> Iterator[ServerProcess]:
    root = tmp_path_factory.mktemp("hostile-tables")
    (root / "secrets" / "acme").mkdir(parents=True)
    (root / "secrets" / "acme" / "key").write_text("x")
    keys = {"access_key": "file:acme/key", "secret_key": "file:acme/key"}
    sink = {"kind": "delta-remote", "name": "lake", "location": "s3://b/lake", "endpoint": bucket.endpoint, **keys}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MILLRACE_SECRET_FOLDER", str(root / "secrets"))
        with server_process(root / "home") as server:
            server.declare("acme", "notes", {**DECLARATION, "sinks": [sink]})
            server.declare("calm", "notes", DECLARATION)
            yield server


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[HostileTable]:
    return hostile_tables(tmp_path_factory.mktemp("checkpoints"))


def query(server: ServerProcess, sql: str) -> Answer:
    return server.ask("POST", "/v1/query", json.dumps({"sql": sql}), seconds=200.0, Content_Type="application/json")


def test_hostile_tables_get_a_reason_and_leave_the_server_small(
    server: ServerProcess, bucket: HostileBucket, tables: list[HostileTable]
) -> None:
    through = []
    with watched(server) as most:
        for number, table in enumerate(tables):
            bucket.table = table
            answer = query(server, "select count(*) from acme.notes")
            if answer.status == 200:
                through += [table.what] if table.refused else []
            else:
                problem = answer.problem
                assert problem["detail"], f"{table.what}: {answer.text}"
                assert problem["remedy"], f"{table.what}: {answer.text}"
                assert "acme" in problem["detail"], f"{table.what}: {answer.text}"
                assert table.names in problem["detail"] or not table.refused, f"{table.what}: {answer.text}"
                assert answer.status != 500 or problem["code"] == "corrupt", f"{table.what}: {answer.text}"
            assert most[0] < MOST_MB, f"{table.what}: {most[0]:.0f} MB"
            if number % 25 == 0:
                assert query(server, "select count(*) from calm.notes").status == 200, f"after {table.what}"
    assert not through


def _failure(table: LakeTable) -> MillraceError | OSError | None:
    try:
        table.snapshot()
    except (MillraceError, OSError) as failed:
        return failed
    return None


def test_hostile_tables_get_a_reason_when_rows_are_delivered(
    bucket: HostileBucket, tables: list[HostileTable], tmp_path: Path
) -> None:
    """The sink reads the log before it writes."""
    keys = S3Keys("a", "s")
    objects = S3Objects("b", PLACE, keys, lambda _: ["127.0.0.1"], bucket.endpoint, "us-east-1")
    process, through = psutil.Process(), []
    before = process.memory_info().rss
    read = [one for one in tables if one.refused and one.what.startswith(DELIVERED)]
    assert len(read) == len(DELIVERED)
    for number, table in enumerate(read):
        bucket.table = table
        failed = _failure(LakeTable(RemoteStore(tmp_path / str(number), objects, TENANTS), KEYED))
        if failed is None:
            through.append(table.what)
        elif isinstance(failed, MillraceError):
            assert "s3://b/lake/acme/notes" in failed.message, table.what
            assert failed.remedy, table.what
        else:
            assert "_delta_log" in str(failed), table.what
        assert process.memory_info().rss - before < 250 * _MIB, table.what
    assert not through


def test_a_checkpoint_of_ours_is_read_here_and_any_other_apart(
    bucket: HostileBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process for each reading of our own tables would cost more than the reading. Tenants' places get one always."""

    def fail(*_: Any) -> Any:
        raise AssertionError("a process was started")

    own = own_checkpoint(tmp_path / "own")
    name = f"_delta_log/{10:020}.checkpoint.parquet"
    objects = S3Objects("b", PLACE, S3Keys("a", "s"), lambda _: ["127.0.0.1"], bucket.endpoint, "us-east-1")
    bucket.table = HostileTable("", {name: own})
    ours, theirs = (RemoteStore(tmp_path / "copies", objects, bounds) for bounds in (OURS, TENANTS))
    with monkeypatch.context() as patch:
        patch.setattr("millrace.lake.apart.BoundedChild", fail)
        here = LakeTable(ours, KEYED).snapshot()
        with pytest.raises(AssertionError, match="a process was started"):
            LakeTable(theirs, KEYED).snapshot()
    assert len(here.files) == 50
    assert LakeTable(theirs, KEYED).snapshot() == here


def test_a_bucket_that_answers_every_next_version_ends(bucket: HostileBucket, tmp_path: Path) -> None:
    class Endless(dict[str, bytes]):
        def get(self, name: str, default: Any = None) -> Any:
            if name in self or not name.endswith(".json"):
                return super().get(name, default)
            return first(add())[next(iter(first()))]

    objects = S3Objects("b", PLACE, S3Keys("a", "s"), lambda _: ["127.0.0.1"], bucket.endpoint, "us-east-1")
    store = RemoteStore(tmp_path, objects, TENANTS)
    bucket.table = HostileTable("", first())
    table = LakeTable(store, KEYED)
    table.snapshot()
    bucket.table = HostileTable("", Endless(first()))
    store.hurry(0.5)
    with pytest.raises(OSError, match="s3://b/lake/acme/notes did not come in time"):
        table.snapshot()
