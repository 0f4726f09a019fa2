"""Rejected rows in a bucket or in HDFS beside those here: added once, kept tidy, deleted with their tenant."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from millrace.credentials.secrets import Secrets
from millrace.exchange.home import Home
from millrace.exchange.mailboxes import open_exchange
from millrace.exchange.places import Places
from millrace.lake import compact
from millrace.lake.log import load
from millrace.lake.read import scan
from millrace.lake.sidecar import StagedChunk, write_data_file
from millrace.lake.state import NO_FLOOR
from millrace.lake.store import Store
from millrace.settings import KEYS_HERE, LakeSettings
from millrace.sink.context import SinkContext
from millrace.sink.contract import StagedGroup
from millrace.sink.delta.error_copies import copies_of_errors, delete_copies
from millrace.sink.delta.sink import ErrorStore
from millrace.sink.delta.upkeep import COMMITS, Upkeep, tidy
from tests.support.remote_delta import bucket_target, hdfs_target
from tests.support.sink_context import sink_context

SCHEMA = pa.schema([("why", pa.string())])


@pytest.fixture(
    params=[bucket_target, pytest.param(hdfs_target, marks=(pytest.mark.slow, pytest.mark.timeout(600)))],
    ids=["bucket", "hdfs"],
)
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    for name, value in request.param(request).settings.items():
        told = "errors_location" if name == "location" else name
        monkeypatch.setenv(f"MILLRACE_LAKE__{told.upper()}", value)
    return Home(tmp_path)


def context(home: Home) -> SinkContext:
    return replace(sink_context(Secrets().read_operators), places=Places(home))


def rejected(home: Home, number: int) -> StagedGroup:
    rows = pa.table({"why": [f"bad {number}"], "_version": [number], "_import": ["imp"], "_row": [1]})
    chunk = StagedChunk(f"imp/{number}", 0, 1, number)
    staged = write_data_file(Store(home.table_errors("acme", "t")), rows, (), f"part-{number}", [chunk])
    return StagedGroup("acme", "t", "any", staged, (("imp", number),))


def copied(home: Home) -> list[str]:
    store = copies_of_errors(context(home), "acme", "t")
    return [] if store is None else sorted(scan(store, load(store))["why"].to_pylist())


def test_rejected_rows_are_there_once_however_often_they_come(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "MOST_SMALL_FILES", 3)
    assert copied(home) == []
    upkeep = Upkeep()
    exchange = open_exchange(home.root)
    keyring = exchange.keyring(KEYS_HERE)
    errors = ErrorStore(context(home), SCHEMA, upkeep, keyring)
    for number in range(COMMITS):
        errors.write([rejected(home, number)])
    errors.write([rejected(home, 0)])
    expected = sorted(f"bad {number}" for number in range(COMMITS))
    assert copied(home) == expected
    due = [one for one in upkeep.take_due() if one.place is not None]
    for one in due:
        tidy(one, context(home), keyring, NO_FLOOR)
    store = copies_of_errors(context(home), "acme", "t")
    assert store is not None
    assert len(due) == 1
    assert len(load(store).files) == 1, "merged"
    ErrorStore(context(home), SCHEMA, upkeep, keyring).write([rejected(home, 1)])
    assert copied(home) == expected
    delete_copies(context(home), "acme", "t")
    assert copied(home) == []
    errors.write([rejected(home, 7)])
    assert copied(home) == ["bad 7"], "a table of the same name after it"


def test_tables_and_rejected_rows_do_not_meet() -> None:
    for errors in ("s3://lake/x", "s3://lake/x/", "s3://lake", "s3://lake/x/y"):
        with pytest.raises(ValueError, match="must not lie in each other"):
            LakeSettings(location="s3://lake/x", errors_location=errors)
    assert LakeSettings(location="s3://lake/x", errors_location="s3://lake/xy").errors_location == "s3://lake/xy"
