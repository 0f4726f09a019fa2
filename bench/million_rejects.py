"""1 M rejected rows: flat memory, exact counts, and a first page of errors at once."""

import time

from bench.figure import Figure, at_most
from bench.memory import peak_memory
from bench.platform import TABLE, TENANT, bench_platform
from millrace.client import Submission

BAD, GOOD = 1_000_000, 10_000


def run() -> list[Figure]:
    with bench_platform() as bench:
        path = bench.data.spoiled(BAD, GOOD)
        with peak_memory(bench.running.process.pid) as peaks:
            sent = bench.connection.imports.send_file(path, Submission(TENANT, TABLE))
            document = bench.finished(sent["id"])
        begun = time.perf_counter()
        page = bench.connection.rejected.page(document["id"], limit=100)
        seconds = time.perf_counter() - begun
    expected = {"read": BAD + GOOD, "accepted": GOOD, "rejected": BAD, "ignored": 0}
    wrong = sum(abs(document["rows"][name] - count) for name, count in expected.items())  # type: ignore[literal-required]
    missing = 100 - len(page["items"])
    return [
        at_most("million_rejects", seconds, "s to the first page", 1.0),
        at_most("million_rejects.miscounted", wrong + missing, "rows", 0, str(document["rows"])),
        *peaks.figures("million_rejects.memory"),
    ]
