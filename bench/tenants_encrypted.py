"""What encryption costs: the same rows end to end, of a tenant that asks for it and of one that does not, by turns."""

import statistics
from pathlib import Path

from bench.data import ALL_ROWS, WARMING_ROWS
from bench.figure import Figure, at_least
from bench.platform import TENANT, Bench, bench_platform

SEALED = "client_s"
ROUNDS = 6


def run() -> list[Figure]:
    with bench_platform() as bench:
        bench.declare_tenant(SEALED, encryption=True)
        path, warming = bench.data.rows(ALL_ROWS), bench.data.rows(WARMING_ROWS, 90_000_000)
        _load(bench, warming, "warm", (TENANT, SEALED))
        # Whoever comes second meets the upkeep of the first: they take turns.
        orders = [(TENANT, SEALED), (SEALED, TENANT)] * (ROUNDS // 2)
        rounds = [_load(bench, path, f"round_{number}", order) for number, order in enumerate(orders)]
    share = statistics.median(seconds[TENANT] / seconds[SEALED] for seconds in rounds)
    plain, sealed = (statistics.median(seconds[tenant] for seconds in rounds) for tenant in (TENANT, SEALED))
    note = f"{ALL_ROWS / sealed:,.0f} rows/s sealed, {ALL_ROWS / plain:,.0f} plain; medians of {ROUNDS} rounds"
    return [at_least("encrypted_share", share, "of the speed without", 0.85, note)]


def _load(bench: Bench, path: Path, table: str, order: tuple[str, str]) -> dict[str, float]:
    """Seconds of each tenant, into fresh tables."""
    for tenant in order:
        bench.declare_table(table, tenant)
    return {tenant: bench.load(path, table, tenant) for tenant in order}
