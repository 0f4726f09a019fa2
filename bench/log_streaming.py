"""From a streamed row to its commit in Delta, from the last commit to END, and what one streaming client reaches."""

import json
import statistics
import time
from datetime import datetime
from pathlib import Path

import pyarrow.parquet as pq

from bench.figure import Figure, at_least, at_most
from bench.platform import TENANT, Bench, bench_platform
from millrace.client import Submission

TRICKLE_SECONDS, TRICKLE_RATE = 15, 100
BULK_ROWS, FRAME_ROWS = 1_000_000, 5_000
ENDS = 20
SIZES = {100_000: "", 1_000_000: ".1m", 10_000_000: ".10m"}


def run() -> list[Figure]:
    figures: list[Figure] = []
    with bench_platform() as bench:
        figures += _end_after_commit(bench)
        for rows, suffix in SIZES.items():
            figures.append(_streamed(bench, rows, suffix))
        figures.append(_bulk(bench))
    return figures


def _declare(bench: Bench, table: str) -> None:
    schema = {"type": "record", "name": table, "fields": [{"name": n, "type": "long"} for n in ("id", "place")]}
    bench.connection.tables.apply(TENANT, table, {"schema": schema, "primary_key": ["id"]})


def _streamed(bench: Bench, rows: int, suffix: str) -> Figure:
    """100 rows a second into a keyed table, half of them updates."""
    table = f"streamed{suffix.replace('.', '_')}"
    _declare(bench, table)
    path = bench.data.folder / f"ids-{rows}.csv"
    if not path.exists():
        path.write_text("id,place\n" + "".join(f"{number},-1\n" for number in range(rows)))
    bench.finished(bench.connection.imports.send_file(path, Submission(TENANT, table))["id"])
    sent: list[float] = []
    with bench.connection.rows.sender(TENANT, table) as stream:
        begun = time.time()
        for number in range(TRICKLE_SECONDS * TRICKLE_RATE):
            time.sleep(max(0.0, begun + number / TRICKLE_RATE - time.time()))
            key = number * 7919 % rows if number % 2 else rows + number
            sent.append(time.time())
            stream.send(json.dumps({"id": key, "place": number}).encode() + b"\n")
    durable = _durable_at(Path(bench.connection.tables.show(TENANT, table)["location"]))
    seconds = [durable[number] - at for number, at in enumerate(sent)][TRICKLE_RATE:]
    note = f"into {rows:,} rows; slowest {max(seconds):.2f} s"
    return at_most(f"streamed_row{suffix}", statistics.median(seconds), "s", 0.7, note)


def _durable_at(location: Path) -> dict[int, float]:
    """When the commit that added each row was made, by the row's `place`."""
    found: dict[int, float] = {}
    for commit in sorted((location / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            added = json.loads(line).get("add")
            if added is None or not (location / added["path"]).exists():
                continue
            for place in pq.read_table(location / added["path"], columns=["place"])["place"].to_pylist():
                if place >= 0:
                    found.setdefault(place, commit.stat().st_mtime)
    return found


def _end_after_commit(bench: Bench) -> list[Figure]:
    waits = []
    location = Path(bench.connection.tables.show(TENANT, "analytics")["location"])
    for number in range(ENDS):
        bench.load(bench.data.rows(100, 200_000_000 + number * 100))
        newest = max((location / "_delta_log").glob("*.json"))
        ended = bench.connection.imports.list(tenant=TENANT, table="analytics", limit=1)[0]["ended_at"]
        assert ended is not None
        waits.append(datetime.fromisoformat(ended).timestamp() - newest.stat().st_mtime)
    return [at_most("end_after_commit", statistics.median(waits), "s", 0.3, f"slowest {max(waits):.2f} s")]


def _bulk(bench: Bench) -> Figure:
    _declare(bench, "poured")
    frames = [
        b"".join(b'{"id":%d,"place":%d}\n' % (n, n) for n in range(first, first + FRAME_ROWS))
        for first in range(0, BULK_ROWS, FRAME_ROWS)
    ]
    with bench.connection.rows.sender(TENANT, "poured") as stream:
        begun = time.perf_counter()
        for frame in frames:
            stream.send(frame)
        stream.flush()
        acknowledged = time.perf_counter() - begun
        stream.finish()
        ended = time.perf_counter() - begun
    note = f"durable in Delta after {ended:.1f} s: {BULK_ROWS / ended:,.0f} rows/s"
    return at_least("streaming_client", BULK_ROWS / acknowledged, "rows/s", 50_000, note)
