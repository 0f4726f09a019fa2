"""Runs schedules on every core: for some time, for some number, or one again; or looks for the planted bugs.

Prints the seeds it used. Exit code 1 and the whole story of the first failure if anything was violated or not found."""

import argparse
import gc
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count

from simulate.bugs import BUGS, Found, find
from simulate.schedule import Lived, run
from simulate.world import World

BATCH = 25
# A life leaves hardly a cycle behind, so looking for them often is time lost.
RARELY = (100_000, 50, 50)


@dataclass
class Sum:
    """Of many schedules."""

    schedules: int = 0
    steps: int = 0
    met: int = 0
    cpu_seconds: float = 0.0
    failed: Lived | None = None

    def add(self, other: "Sum") -> None:
        self.schedules += other.schedules
        self.steps += other.steps
        self.met += other.met
        self.cpu_seconds += other.cpu_seconds
        self.failed = self.failed or other.failed


def batch(first_seed: int, *, sql: bool = False) -> Sum:
    done, began = Sum(), time.process_time()
    for seed in range(first_seed, first_seed + BATCH):
        lived = run(seed, _on_sql if sql else World)
        done.add(Sum(1, lived.steps, lived.met >= 2, 0.0, lived if lived.violation else None))
        if done.failed:
            break
    done.cpu_seconds = time.process_time() - began
    return done


def _on_sql() -> World:
    from simulate.sqlstore import SqlStore  # noqa: PLC0415

    return World(SqlStore)


def run_many(first_seed: int, is_enough: Callable[[Sum], bool], workers: int, *, sql: bool = False) -> Sum:
    total, seeds = Sum(), count(first_seed, BATCH)
    with _pool(workers) as pool:
        waiting = [pool.submit(batch, next(seeds), sql=sql) for _ in range(2 * workers)]
        while waiting:
            total.add(waiting.pop(0).result())
            if total.failed is None and not is_enough(total):
                waiting.append(pool.submit(batch, next(seeds), sql=sql))
    return total


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, initializer=gc.set_threshold, initargs=RARELY)


def find_bugs(workers: int, seconds: float, first_seed: int) -> Iterator[Found]:
    with _pool(workers) as pool:
        yield from pool.map(partial(find, seconds=seconds, first_seed=first_seed), BUGS)


def main() -> int:
    given = _arguments()
    first_seed = secrets.randbits(40) if given.seed is None else given.seed
    if given.bugs:
        return _show_bugs(given.workers, given.seconds, first_seed)
    if given.seed is not None and given.schedules is None and not given.seconds:
        return _show_one(run(given.seed, _on_sql if given.sql else World))
    began = time.monotonic()
    print(f"seeds from {first_seed}, {given.workers} workers", flush=True)
    most: int = given.schedules or 0

    def is_enough(total: Sum) -> bool:
        return total.schedules >= most if most else time.monotonic() - began > float(given.seconds)

    total = run_many(first_seed, is_enough, given.workers, sql=given.sql)
    seconds = time.monotonic() - began
    print(
        f"{total.schedules} schedules in {seconds:.1f} s ({60 * total.schedules / seconds:.0f} per minute; "
        f"{60 * total.schedules / total.cpu_seconds:.0f} per minute of one core), "
        f"seeds {first_seed} to {first_seed + total.schedules - 1}, "
        f"mean {total.steps / total.schedules:.0f} steps, two or more imports met on a table in "
        f"{100 * total.met / total.schedules:.0f} %, violations {1 if total.failed else 0}"
    )
    return _show_one(total.failed) if total.failed else 0


def _show_bugs(workers: int, seconds: float, first_seed: int) -> int:
    found, began = 0, time.monotonic()
    for one in find_bugs(workers, seconds or 60.0, first_seed):
        found += one.lived is not None
        why = one.lived.violation if one.lived is not None else "NOT FOUND"
        print(f"{one.seconds:6.2f} s {one.schedules:6d} schedules  {one.bug}: {str(why)[:110]}", flush=True)
    print(f"{found} of {len(BUGS)} planted bugs found in {time.monotonic() - began:.1f} s, seeds from {first_seed}")
    return 0 if found == len(BUGS) else 1


def _show_one(lived: Lived) -> int:
    if lived.violation is None:
        print(f"seed {lived.seed}: {lived.steps} steps, nothing violated")
        return 0
    print(f"seed {lived.seed}: {lived.violation}\nafter: {', '.join(lived.trace)}", file=sys.stderr)
    return 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.0, help="go on for so long (with --bugs: for each)")
    parser.add_argument("--schedules", type=int, help="or for so many")
    parser.add_argument("--seed", type=int, help="the first seed; alone: that one again")
    parser.add_argument("--workers", type=int, default=min(os.cpu_count() or 1, 2))
    parser.add_argument("--sql", action="store_true", help="on the real control store, which is slower")
    parser.add_argument("--bugs", action="store_true", help="plant each known bug and look for it")
    given = parser.parse_args()
    if not given.seconds and given.schedules is None and given.seed is None:
        given.seconds = 60.0
    return given


if __name__ == "__main__":
    sys.exit(main())
