"""A throw-away BigQuery, or Cloud Storage, on loopback, in an environment of their own (scripts/setup bigquery): what the
emulators want of other libraries is not what Millrace wants."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from millrace.embed.jars import cache_folder
from millrace.embed.ports import LOOPBACK, free_ports
from millrace.embed.process import Child, Launch
from millrace.model.sinks import SinkTarget
from tests.support.children import wait_ready

START_SECONDS = 120
PROJECT = "millrace-test"
BUCKET = "lake"
# The emulator loads an extension of its engine; without the internet it must come from its package.
PROGRAM = """
import sys
import duckdb_extensions
duckdb_extensions.import_extension("spatial")
from bqemulator.cli import main
sys.argv = ["bqemulator", "start", *sys.argv[1:]]
main()
"""


def bigquery_target(request: pytest.FixtureRequest) -> SinkTarget:
    settings = {"project": PROJECT, "endpoint": request.getfixturevalue("bigquery_url")}
    return SinkTarget("warehouse", "bigquery", True, settings)


@contextmanager
def bigquery_emulator() -> Iterator[str]:
    """Its URL; empty, and alive as long as the context."""
    rest, grpc = free_ports(2)
    words = ("python", "-c", PROGRAM, "--rest-port", str(rest), "--grpc-port", str(grpc), "--log-level", "error")
    with _running("bigquery", words, f"http://{LOOPBACK}:{rest}", f"/bigquery/v2/projects/{PROJECT}/datasets") as url:
        yield url


@contextmanager
def storage_emulator() -> Iterator[str]:
    """Its URL; it has one empty bucket."""
    (port,) = free_ports(1)
    place = (f"--host={LOOPBACK}", f"--port={port}", "--in-memory", f"--default-bucket={BUCKET}")
    words = ("gcp-storage-emulator", "start", *place)
    with _running("storage", words, f"http://{LOOPBACK}:{port}", f"/storage/v1/b/{BUCKET}") as url:
        yield url


@contextmanager
def _running(name: str, words: tuple[str, ...], url: str, asked: str) -> Iterator[str]:
    program = cache_folder() / "bigquery-emulator" / "bin" / words[0]
    if not program.exists():
        raise RuntimeError(f"no emulator of {name}: run scripts/setup bigquery")
    folder = Path(tempfile.mkdtemp(prefix=f"millrace-{name}-"))
    argv = (str(program), *words[1:])
    child = Child(Launch(name, argv, folder / "server.log", cwd=folder, is_ready=lambda: _answers(url + asked)))
    child.start()
    try:
        wait_ready(child, START_SECONDS)
        yield url
    finally:
        child.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _answers(url: str) -> bool:
    try:
        return httpx2.get(url, timeout=5).is_success
    except httpx2.HTTPError:
        return False
