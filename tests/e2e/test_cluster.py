"""The same platform grown: Spark standalone with two executors, a Kafka cluster of its own, PostgreSQL as control store."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import psutil
import psycopg
import pyspark
import pytest

from millrace.embed.broker import Broker
from millrace.embed.java import find_java
from millrace.embed.ports import accepts, free_ports
from tests.support.platform import record, running_platform
from tests.support.processes import end, leashed
from tests.support.waiting import wait_until

ROWS = 300_000
SPARK_SECRET = "0123456789abcdef0123456789abcdef"
SPARK_HOME = Path(pyspark.__file__).parent

pytestmark = pytest.mark.slow


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A master and two workers of one core each, on loopback, who ask for a secret."""
    port = free_ports(1)[0]
    url = f"spark://127.0.0.1:{port}"
    base = "org.apache.spark.deploy"
    properties = tmp_path / "spark.conf"
    properties.touch(0o600)
    properties.write_text(
        f"spark.authenticate true\nspark.authenticate.secret {SPARK_SECRET}\nspark.network.crypto.enabled true\n"
    )
    daemons = [
        (f"{base}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"),
        *((f"{base}.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0",
           "--work-dir", str(tmp_path / f"worker-{number}"), url) for number in (1, 2)),
    ]  # fmt: skip
    environ = {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    environ["PYSPARK_PYTHON"] = sys.executable
    started = []
    with (tmp_path / "spark.log").open("wb") as log:
        for daemon in daemons:
            argv = [str(SPARK_HOME / "bin" / "spark-class"), *daemon, "--properties-file", str(properties)]
            process = subprocess.Popen(leashed(argv), env=environ, stdout=log, stderr=log)
            started.append(process)
            if daemon is daemons[0]:
                wait_until(lambda: accepts(port), 60, "the master to listen")
    yield url
    for process in reversed(started):
        end(process, 0)


@pytest.fixture
def store_url(postgres_dsn: str) -> str:
    """A database of its own."""
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("create database grown")
    address, _, _ = postgres_dsn.partition("?")
    base, _, _ = address.rpartition("/")
    return f"{base}/grown".replace("postgresql://", "postgresql+psycopg://")


def test_two_executors_share_the_work(master: str, kafka: Broker, store_url: str, tmp_path: Path) -> None:
    ui = free_ports(1)[0]
    options = {
        "spark.authenticate.secret": SPARK_SECRET,
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.ui.enabled": "true",
        "spark.ui.port": str(ui),
    }
    environ = {
        "MILLRACE_SPARK__MASTER": master,
        "MILLRACE_SPARK__OPTIONS": json.dumps(options),
        "MILLRACE_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "MILLRACE_STORE_URL": store_url,
    }
    path = tmp_path / "numbers.csv"
    ids = pl.int_range(ROWS, eager=True)
    pl.DataFrame({"id": ids, "text": ids.cast(str).str.zfill(60)}).write_csv(path)
    with running_platform(tmp_path / "home", **environ) as platform:
        target = platform.declare("spread", record("numbers", ("id", "long"), ("text", "string"), key=("id",)))
        ended = platform.send(target, path)
        assert ended["state"] == "completed", ended["error"]
        assert ended["rows"]["accepted"] == ROWS
        stored = pl.scan_delta(str(platform.home.table("spread", "numbers")))
        assert stored.select(pl.len(), pl.col("id").n_unique().alias("keys")).collect().row(0) == (ROWS, ROWS)
        assert not [one for one in psutil.process_iter() if _shows_secret(one)]
        executors = [one for one in _executors(ui) if one["id"] != "driver"]
        assert not list(platform.home.broker.glob("*"))
        assert not platform.home.store.exists()
        assert len(executors) == 2
        assert all(one["completedTasks"] > 0 for one in executors), executors


def _shows_secret(process: psutil.Process) -> bool:
    try:
        return SPARK_SECRET in " ".join(process.cmdline())
    except psutil.Error:
        return False


def _executors(ui: int) -> list[dict[str, object]]:
    base = f"http://127.0.0.1:{ui}/api/v1/applications"

    def ask(url: str) -> list[dict[str, object]]:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return list(json.load(answer))
        except urllib.error.URLError:
            return []

    application = wait_until(lambda: ask(base), 30, "Spark's REST interface")[0]["id"]
    return ask(f"{base}/{application}/executors")
