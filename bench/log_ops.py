"""How fast one controller applies ops, how many appends a minute keep their order, how long a schema change takes."""

import base64
import json
import sqlite3
import statistics
import time
from http import HTTPStatus
from typing import Any

import polars as pl

from bench.figure import Figure, at_least, at_most
from bench.platform import TABLE, TENANT, Bench, bench_platform
from millrace.exchange.home import Home
from millrace.exchange.op_keys import OpKeyFiles
from millrace.model.names import new_id
from millrace.model.ops import Op
from millrace.model.ops.imports import BeginImport
from millrace.model.ops.rows import Append
from millrace.model.ops.spans import BeginSpan, EndSpan
from millrace.wire.access import Account, as_account
from millrace.wire.client import Appender, Cluster
from millrace.wire.envelope import checksum, compress, pack
from millrace.wire.signing import OpSigner
from millrace.wire.topics import TABLE_OPS

OPS, APPENDS, KEYS, VERSIONS, COLUMNS = 6_000, 3_000, 50, 50, 100
DEADLINE_SECONDS = 120.0


def run() -> list[Figure]:
    with bench_platform() as bench:
        return [*_schema_changes(bench), *_ops(bench), *_appends(bench)]


def _ops(bench: Bench) -> list[Figure]:
    """Imports admitted and spans opened and ended, appended to the log at once."""
    made: list[Op[Any]] = []
    for number in range(OPS // 4):
        made.append(BeginSpan(TENANT, f"bench-{number}", id=new_id("op")))
        made += [BeginImport(TENANT, TABLE, span=f"bench-{number}", id=new_id("imp")) for _ in range(2)]
        made.append(EndSpan(TENANT, f"bench-{number}", id=new_id("op")))
    begun = time.perf_counter()
    _append(bench, made)
    _known(bench, f"/v1/ops/{made[-1].id}")
    rate = len(made) / (time.perf_counter() - begun)
    return [at_least("op_throughput", rate, "ops/s", 500)]


def _appends(bench: Bench) -> list[Figure]:
    """One row each into one table, over a few keys: the last one must win everywhere."""
    schema = {"type": "record", "name": "trickle", "fields": [{"name": n, "type": "long"} for n in ("id", "place")]}
    bench.connection.tables.apply(TENANT, "trickle", {"schema": schema, "primary_key": ["id"]})
    made = [_one_row(number) for number in range(APPENDS)]
    begun = time.perf_counter()
    _append(bench, made)
    _known(bench, f"/v1/imports/{made[-1].id}")
    ended = bench.finished(made[-1].id)
    for one in made[-KEYS:]:
        bench.finished(one.id)
    minutes = (time.perf_counter() - begun) / 60
    stored = pl.read_delta(_location(bench, "trickle")).sort("id").select("id", "place").rows()
    expected = [(key, APPENDS - KEYS + key) for key in range(KEYS)]
    in_order = stored == expected and ended["state"] == "completed"
    rate = APPENDS / minutes if in_order else 0.0
    return [at_least("ordered_appends", rate, "appends/min", 10_000, "in order" if in_order else "OUT OF ORDER")]


def _one_row(number: int) -> Append:
    rows = json.dumps({"id": number % KEYS, "place": number}).encode() + b"\n"
    payload = compress(rows)
    body = {"rows": 1, "plain_bytes": len(rows), "checksum": checksum(payload)}
    return Append(TENANT, "trickle", **body, payload=base64.b64encode(payload).decode(), id=new_id("imp"))


def _schema_changes(bench: Bench) -> list[Figure]:
    seconds = []
    for version in range(VERSIONS):
        fields: list[dict[str, Any]] = [{"name": "id", "type": "long"}]
        fields += [{"name": f"c{n}", "type": ["null", "string"]} for n in range(COLUMNS - VERSIONS + version)]
        document = {"schema": {"type": "record", "name": "wide", "fields": fields}, "primary_key": ["id"]}
        begun = time.perf_counter()
        answer = bench.connection.tables.apply(TENANT, "wide", document)
        seconds.append(time.perf_counter() - begun)
        bench.finished(dict(answer)["import"])
    return [at_most("schema_change", statistics.median(seconds[-10:]), "s", 1.0, f"slowest {max(seconds):.2f} s")]


def _append(bench: Bench, made: list[Op[Any]]) -> None:
    home = Home(bench.running.home)
    ports = json.loads((home.broker / "ports.json").read_text())
    partition = _partition(bench)
    broker = Cluster(f"127.0.0.1:{ports['broker']}")
    appender = Appender(as_account(broker, home.broker_passwords, Account.SERVER))
    signer = OpSigner(appender, OpKeyFiles(home).read()[-1])
    try:
        sent = [signer.append(TABLE_OPS, TENANT.encode(), pack(op.to_dict()), partition) for op in made]
        for one in sent:
            one.result()
    finally:
        appender.close()


def _partition(bench: Bench) -> int:
    with sqlite3.connect(f"file:{Home(bench.running.home).store}?mode=ro", uri=True) as store:
        return int(store.execute("select partition from tenants where name = ?", (TENANT,)).fetchone()[0])


def _known(bench: Bench, route: str) -> None:
    """Waits until the op is applied."""
    ends = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < ends:
        if bench.connection.send("GET", route).status_code == HTTPStatus.OK:
            return
        time.sleep(0.02)
    raise RuntimeError(f"{route} was not there in {DEADLINE_SECONDS:g} s")


def _location(bench: Bench, table: str) -> str:
    return bench.connection.tables.show(TENANT, table)["location"]
