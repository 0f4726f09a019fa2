"""Tables in a bucket, on a platform of their own: the operator's lake and a tenant's own bucket hold the same truth, and who
reads them there needs no help of ours."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import deltalake
import polars as pl
import pyarrow as pa
import pytest

from millrace.client import Submission
from tests.support.moto_server import ACCESS_KEY, S3, SECRET_KEY, s3_server
from tests.support.platform import RunningPlatform, record, running_platform
from tests.support.relay import relay
from tests.support.remote_delta import bucket_settings
from tests.support.sink_context import SHARED_SECRETS
from tests.support.waiting import wait_until

ROWS = 200_000
ID, NAME, CITY = ("id", "long"), ("name", ["null", "string"]), ("city", ["null", "string"])

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="module")
def lake(s3: S3) -> dict[str, Any]:
    """The operator's."""
    return bucket_settings(s3)


@pytest.fixture(scope="module")
def errors(lake: dict[str, Any]) -> str:
    """Where the operator keeps rejected rows."""
    return f"{lake['location'].removesuffix('/lake')}/rejected"


@pytest.fixture(scope="module")
def platform(
    s3: S3, lake: dict[str, Any], errors: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningPlatform]:
    with running_platform(
        tmp_path_factory.mktemp("remote"),
        MILLRACE_API__PRIVATE_TARGETS='["127.0.0.0/8"]',
        MILLRACE_SECRET_TEST_ACCESS=ACCESS_KEY,
        MILLRACE_SECRET_TEST_SECRET=SECRET_KEY,
        MILLRACE_SECRETS__SHARED=SHARED_SECRETS,
        **{f"MILLRACE_LAKE__{name.upper()}": value for name, value in {**lake, "errors_location": errors}.items()},
    ) as started:
        yield started


def test_two_buckets_hold_what_was_sent_whoever_dies_meanwhile(
    platform: RunningPlatform, s3: S3, lake: dict[str, Any], tmp_path: Path
) -> None:
    own = bucket_settings(s3)
    sinks: list[Any] = ["delta", {"kind": "delta", "name": "own", **own}]
    target = platform.declare("bucketed", record("people", ID, NAME, key=("id",), sinks=sinks))
    truth = pl.DataFrame({"id": range(ROWS)}).with_columns(name=pl.format("name {} of many, padded", "id"))
    assert send(platform, target, tmp_path / "1.csv", truth)["sinks"].keys() == {"delta", "own"}

    half = truth.filter(pl.col("id") % 2 == 0).with_columns(name=pl.format("renamed {}", "id"))
    half.write_csv(tmp_path / "2.csv")
    begun = platform.client.imports.send_file(tmp_path / "2.csv", Submission("bucketed", "people"))
    wait_until(lambda: platform.client.imports.show(begun["id"])["chunks"]["judged"], 60, "some chunks to be judged")
    platform.part("data-plane").kill()
    assert platform.ended(begun["id"])["state"] == "completed"

    gone = truth.filter(pl.col("id") % 7 == 0).with_columns(name=pl.lit(None), _deleted=pl.lit("true"))
    send(platform, target, tmp_path / "3.csv", gone)
    truth = truth.update(half, on="id").filter(pl.col("id") % 7 != 0).with_columns(city=pl.lit("?"))

    platform.declare("bucketed", record("people", ID, NAME, CITY, key=("id",), sinks=sinks))
    moved = truth.head(1000).with_columns(city=pl.format("city {}", "id"))
    send(platform, target, tmp_path / "4.csv", moved)
    truth = truth.with_columns(city=pl.lit(None, pl.String)).update(moved, on="id").sort("id")
    for place in (lake, own):
        assert in_bucket(s3, place, "bucketed/people").equals(truth), place["location"]
    assert not list(platform.home.table("bucketed", "people").glob("_delta_log/*")), "no third copy here"


def test_a_table_without_a_key_is_there_once_and_is_queried_like_any(
    platform: RunningPlatform, s3: S3, lake: dict[str, Any], tmp_path: Path
) -> None:
    target = platform.declare("appended", record("people", ID, NAME, sinks=["delta"]))
    sent = pl.DataFrame({"id": [1, 1, 2], "name": ["a", "a", None]})
    for number in range(2):
        send(platform, target, tmp_path / f"{number}.csv", sent)
    assert in_bucket(s3, lake, "appended/people").rows() == [(1, "a")] * 4 + [(2, None)] * 2
    answer = platform.client.query("select id, count(*) from appended.people group by id order by id")
    assert answer["rows"] == [[1, 4], [2, 2]]


def test_rejected_rows_are_kept_in_the_bucket_too_until_their_tenant_is_erased(
    platform: RunningPlatform, s3: S3, errors: str, tmp_path: Path
) -> None:
    target = platform.declare("refused", record("people", ID, NAME))
    (tmp_path / "bad.csv").write_text("id,name\n1,a\nx,b\n")
    ended = platform.send(target, tmp_path / "bad.csv")
    (rejected,) = platform.client.rejected.list(ended["id"])
    place = f"{errors}/refused/people"
    (kept,) = pa.table(deltalake.DeltaTable(place, storage_options=s3.reader_options()).scan().read_all()).to_pylist()
    assert (kept["_import"], kept["_row"], kept["raw"]) == (ended["id"], rejected["row"], b"x,b")
    platform.client.tenants.delete("refused", confirm="refused", grace_days=1)
    platform.client.tenants.erase("refused", confirm="refused", now=True, wait=30)
    with pytest.raises(deltalake.exceptions.TableNotFoundError):
        deltalake.DeltaTable(place, storage_options=s3.reader_options())


def test_a_bucket_that_stops_answering_delays_its_own_table_only(
    platform: RunningPlatform, s3: S3, tmp_path: Path
) -> None:
    people = pl.DataFrame({"id": [1, 2], "name": ["a", "b"]})
    with relay(urlsplit(s3.endpoint).port or 0) as door:
        own = {**bucket_settings(s3), "endpoint": door.endpoint}
        stuck = [{"kind": "delta", "name": "own", **own}]
        silent = platform.declare("silent", record("people", ID, NAME, key=("id",), sinks=stuck))
        others = platform.declare("answering", record("people", ID, NAME, key=("id",), sinks=["delta"]))
        for target in (silent, others):
            send(platform, target, tmp_path / "1.csv", people)
        door.shut()
        people.with_columns(name=pl.lit("later")).write_csv(tmp_path / "2.csv")
        waiting = platform.client.imports.send_file(tmp_path / "2.csv", Submission("silent", "people"))["id"]
        for number in range(3):
            send(platform, others, tmp_path / f"3-{number}.csv", people)
        assert platform.client.query("select count(*) from answering.people")["rows"] == [[2]]
        assert platform.client.imports.show(waiting)["state"] in ("processing", "stalled")
        assert platform.client.health()["status"] == "ok"
        door.open()
        assert platform.ended(waiting)["state"] == "completed"
        assert in_bucket(s3, own, "silent/people")["name"].to_list() == ["later", "later"]


def send(platform: RunningPlatform, target: str, file: Path, rows: pl.DataFrame) -> dict[str, Any]:
    rows.write_csv(file)
    ended = platform.send(target, file)
    assert (ended["state"], ended["rows"]["accepted"]) == ("completed", rows.height), ended
    return ended


def in_bucket(s3: S3, place: dict[str, Any], table: str) -> pl.DataFrame:
    """What deltalake sees there, with nothing but the bucket's keys."""
    found = deltalake.DeltaTable(f"{place['location']}/{table}", storage_options=s3.reader_options())
    rows = pl.DataFrame(pa.table(found.scan().read_all()))
    return rows.select(name for name in rows.columns if not name.startswith("_")).sort("id")
