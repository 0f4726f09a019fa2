"""Places for tables elsewhere, for tests: any number of stores on one table, each with a folder of its own for its copies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import deltalake
import polars as pl
import pyarrow as pa

from millrace.lake.hdfs import HdfsObjects
from millrace.lake.remote import RemoteStore
from millrace.outbound.objects import Objects
from millrace.outbound.s3 import S3Objects
from millrace.outbound.s3_signing import S3Keys
from tests.support.hdfs import HdfsCluster
from tests.support.moto_server import ACCESS_KEY, REGION, S3, SECRET_KEY

_numbers = count(1)


def itself(host: str) -> Sequence[str]:
    """Tests go where they are told."""
    return [host]


@dataclass(frozen=True)
class Place:
    """One table's place."""

    objects: Callable[[], Objects]
    folder: Path
    reader_options: dict[str, str] | None
    readable: str

    def open(self, kind: type[RemoteStore] = RemoteStore) -> RemoteStore:
        return kind(self.folder / f"copies{next(_numbers)}", self.objects())

    def read_by_polars(self) -> list[tuple[int, int]]:
        frame = pl.scan_delta(self.readable, storage_options=self.reader_options).select("id", "_version").collect()
        return sorted(frame.rows())

    def read_by_deltalake(self) -> list[tuple[int, int]]:
        rows = pa.table(deltalake.DeltaTable(self.readable, storage_options=self.reader_options).scan().read_all())
        return sorted(zip(rows["id"].to_pylist(), rows["_version"].to_pylist(), strict=True))


def in_a_bucket(server: S3, folder: Path) -> Place:
    bucket, keys = server.bucket(), S3Keys(ACCESS_KEY, SECRET_KEY)
    objects = lambda: S3Objects(bucket, "lake/acme/t", keys, itself, server.endpoint, REGION)  # noqa: E731
    return Place(objects, folder, server.reader_options(), f"s3://{bucket}/lake/acme/t")


def in_the_operators_bucket(server: S3, folder: Path) -> Place:
    bucket, keys = server.bucket(), S3Keys(ACCESS_KEY, SECRET_KEY)
    from millrace.outbound.operator_objects import OperatorObjects, s3_store  # noqa: PLC0415

    url = f"s3://{bucket}/lake/acme/t"
    objects = lambda: OperatorObjects(url, s3_store(bucket, keys, server.endpoint, REGION), "lake/acme/t")  # noqa: E731
    return Place(objects, folder, server.reader_options(), url)


def in_hdfs(cluster: HdfsCluster, folder: Path) -> Place:
    root = f"/lake/{next(_numbers)}/t"
    base = f"http://127.0.0.1:{cluster.http_port}"
    objects = lambda: HdfsObjects(f"{cluster.uri}{root}", base, root, {"user.name": "millrace"}, itself)  # noqa: E731
    return Place(objects, folder, None, f"{cluster.uri}{root}")
