"""What a Python worker holds at most while a million rows go to a sink, for the kinds that have no bench of their own."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.figure import Figure, at_most
from bench.memory import peak_memory
from bench.platform import bench_platform
from bench.sinks import LOOPBACK, ROWS, declare
from tests.support.broker import open_broker
from tests.support.mariadb import DATABASE, USER, mariadb
from tests.support.moto_server import ACCESS_KEY, SECRET_KEY, s3_server
from tests.support.remote_delta import bucket_settings
from tests.support.row_receiver import REFERENCE, SECRET, row_receiver
from tests.support.sink_context import SHARED_SECRETS

MOST_WORKER_MB = 400


def run() -> list[Figure]:
    with TemporaryDirectory(prefix="millrace-bench-") as scratch, _targets(Path(scratch)) as targets:
        return [_figure(Path(scratch), kind, target) for kind, target in targets.items()]


def _figure(scratch: Path, kind: str, target: Any) -> Figure:
    """On a platform of its own: a worker keeps what an earlier sink made it take."""
    with bench_platform(
        MILLRACE_API__PRIVATE_TARGETS=LOOPBACK,
        MILLRACE_FILES_ROOT=str(scratch),
        MILLRACE_SECRET_TEST_WEBHOOK=SECRET,
        MILLRACE_SECRET_TEST_ACCESS=ACCESS_KEY,
        MILLRACE_SECRET_TEST_SECRET=SECRET_KEY,
        MILLRACE_SECRETS__SHARED=SHARED_SECRETS,
    ) as bench:
        declare(bench, "kept", [target])
        with peak_memory(bench.running.process.pid) as peaks:
            seconds = bench.load(bench.data.rows(ROWS, 90_000_000), "kept")
    note = f"{ROWS / seconds:,.0f} rows/s"
    return at_most(f"sink_{kind}.python_worker", peaks["python_worker"], "MB", MOST_WORKER_MB, note)


@contextmanager
def _targets(scratch: Path) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        kafka = stack.enter_context(open_broker(scratch / "kafka"))
        receiver, s3 = stack.enter_context(row_receiver()), stack.enter_context(s3_server())
        host, _, port = kafka.bootstrap_servers.partition(":")
        place = {"host": "127.0.0.1", "port": stack.enter_context(mariadb()), "database": DATABASE, "user": USER}
        yield {
            "delta": "delta",
            "files": {"kind": "files", "name": "out", "path": (scratch / "out").as_uri(), "mode": "changelog"},
            "jdbc": {"kind": "jdbc", "name": "mart", **place},
            "kafka": {"kind": "kafka", "name": "feed", "hosts": [host], "port": int(port), "partitions": 2},
            "webhook": {"kind": "webhook", "name": "listener", "url": receiver.url, "secret": REFERENCE},
            "delta_remote": {"kind": "delta", "name": "own", **bucket_settings(s3)},
        }
