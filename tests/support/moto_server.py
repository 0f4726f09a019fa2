"""A throw-away S3 server on loopback (moto's): `with s3_server() as s3`, then `s3.bucket()` for an empty bucket of one's own.

A process of its own: some readers hold on to the interpreter while they wait for an answer."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import boto3
import httpx2

from millrace.embed.ports import LOOPBACK, free_ports
from millrace.embed.process import Child, Launch
from tests.support.children import wait_ready

START_SECONDS = 60
ACCESS_KEY, SECRET_KEY, REGION = "tester", "not-a-secret", "us-east-1"


@dataclass(frozen=True)
class S3:
    """Where it answers. Tests that share it take a bucket each."""

    endpoint: str
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def bucket(self) -> str:
        name = f"bucket{next(self._numbers)}"
        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name=REGION,
        )
        client.create_bucket(Bucket=name)
        client.close()
        return name

    def reader_options(self) -> dict[str, str]:
        """What polars and deltalake want to know."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
            "AWS_ALLOW_HTTP": "true",
        }


@contextmanager
def s3_server() -> Iterator[S3]:
    """Lives, with all its buckets, as long as the context."""
    folder = Path(tempfile.mkdtemp(prefix="millrace-moto-"))
    (port,) = free_ports(1)
    words = (sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(port))
    child = Child(Launch("moto", words, folder / "server.log", cwd=folder, is_ready=lambda: _answers(port)))
    child.start()
    try:
        wait_ready(child, START_SECONDS)
        yield S3(f"http://{LOOPBACK}:{port}")
    finally:
        child.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _answers(port: int) -> bool:
    try:
        return httpx2.get(f"http://{LOOPBACK}:{port}/moto-api/", timeout=2).status_code == 200
    except httpx2.HTTPError:
        return False
