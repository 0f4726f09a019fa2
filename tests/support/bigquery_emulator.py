"""A throw-away BigQuery on loopback, bqemulator's, in an environment of its own (scripts/setup bigquery): what it wants of
other libraries is not what Millrace wants."""

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

START_SECONDS = 120
PROJECT = "millrace-test"
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
    folder = Path(tempfile.mkdtemp(prefix="millrace-bigquery-"))
    rest, grpc = free_ports(2)
    child = Child(_launch(folder, rest, grpc))
    child.start()
    try:
        child.wait_ready(START_SECONDS)
        yield f"http://{LOOPBACK}:{rest}"
    finally:
        child.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _launch(folder: Path, rest: int, grpc: int) -> Launch:
    python = cache_folder() / "bigquery-emulator" / "bin" / "python"
    if not python.exists():
        raise RuntimeError("no BigQuery emulator: run scripts/setup bigquery")
    ports = ("--rest-port", str(rest), "--grpc-port", str(grpc), "--log-level", "error")
    words = (str(python), "-c", PROGRAM, *ports)
    return Launch("bigquery", words, folder / "server.log", cwd=folder, is_ready=lambda: _answers(rest))


def _answers(port: int) -> bool:
    try:
        return httpx2.get(f"http://{LOOPBACK}:{port}/bigquery/v2/projects/{PROJECT}/datasets", timeout=5).is_success
    except httpx2.HTTPError:
        return False
