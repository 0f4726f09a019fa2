"""What encryption costs: the same rows end to end, of a tenant that asks for it and of one that does not, by turns."""

import statistics
from pathlib import Path

from bench.data import ALL_ROWS, WARMING_ROWS
from bench.figure import Figure, at_least
from bench.platform import TENANT, Bench, bench_platform

SEALED = "client_s"
ROUNDS = 3


def run() -> list[Figure]:
    with bench_platform() as bench:
        bench.declare_tenant(SEALED, encryption=True)
        path, warming = bench.data.rows(ALL_ROWS), bench.data.rows(WARMING_ROWS, 90_000_000)
        _load(bench, warming, "warm")
        rounds = [_load(bench, path, f"round_{number}") for number in range(ROUNDS)]
    plain, sealed = (statistics.median(column) for column in zip(*rounds, strict=True))
    note = f"{ALL_ROWS / sealed:,.0f} rows/s sealed, {ALL_ROWS / plain:,.0f} plain; medians of {ROUNDS} by turns"
    return [at_least("encrypted_share", plain / sealed, "of the speed without", 0.85, note)]


def _load(bench: Bench, path: Path, table: str) -> tuple[float, float]:
    """Seconds plain and sealed, each into a fresh table."""
    for tenant in (TENANT, SEALED):
        bench.declare_table(table, tenant)
    return bench.load(path, table, TENANT), bench.load(path, table, SEALED)
