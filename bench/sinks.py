"""What the benches of the sinks share: servers of their own, tables that name them, and what a process tree costs."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from bench.platform import TENANT, Bench, bench_platform
from millrace.client import Submission

LOOPBACK = '["127.0.0.0/8"]'
ROWS = 1_000_000
WARMING_ROWS = 200_000
FIELDS = (
    ("PROVINCECODE", "string"), ("DEVICEID", "string"), ("IFINDEX", "int"), ("FRAME", "int"), ("SLOT", "int"),
    ("PORT", "int"), ("ONUINDEX", "int"), ("ONUID", "int"), ("TIME", "string"), ("SPEEDIN", "double"), ("SPEEDOUT", "double"),
)  # fmt: skip
# Cassandra spreads rows by the first part, which thousands of them share.
KEY = ["PROVINCECODE", "DEVICEID", "ONUID"]


@contextmanager
def sinks_platform() -> Iterator[Bench]:
    with bench_platform(MILLRACE_API__PRIVATE_TARGETS=LOOPBACK) as bench:
        yield bench


def postgres_sink(dsn: str, **more: Any) -> dict[str, Any]:
    at = urlsplit(dsn)
    place = {"host": at.hostname, "port": at.port, "database": at.path[1:], "user": at.username}
    return {"kind": "postgres", "name": "warehouse", **place, **more}


def cassandra_sink(port: int, **more: Any) -> dict[str, Any]:
    return {"kind": "cassandra", "name": "wide", "hosts": ["127.0.0.1"], "port": port, "consistency": "ONE", **more}


def declare(bench: Bench, table: str, sinks: list[Any]) -> None:
    fields = [{"name": name, "type": kind} for name, kind in FIELDS]
    schema = {"type": "record", "name": table, "fields": fields}
    document = {"schema": schema, "primary_key": KEY, "sinks": sinks}
    bench.connection.json("PUT", f"/v1/tenants/{TENANT}/tables/{table}", json=document, params={"check": "false"})
    # What a first write has to make is made: the table itself is an import, too.
    wanted = {"tenant": TENANT, "table": table, "kind": "alter", "limit": "1"}
    while bench.connection.json("GET", "/v1/imports", params=wanted)["items"][0]["ended_at"] is None:
        time.sleep(0.05)


def cpu_seconds(pids: list[int]) -> float:
    """Of these processes and all that they started and that still live."""
    total = 0.0
    for pid in pids:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            total += times.user + times.system
    return total


def begin_upload(bench: Bench, path: Path, table: str) -> str:
    return bench.connection.imports.send_file(path, Submission(TENANT, table))["id"]
