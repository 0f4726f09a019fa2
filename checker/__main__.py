"""`python -m checker soak --minutes 5`, `python -m checker check DUMP`, `python -m checker mutants`.

Exit code 0 only if every check is green and, after a soak, every quota is met."""

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

# Kafka and Spark want the cores more than the reader does.
os.environ.setdefault("POLARS_MAX_THREADS", "1")

from checker.checks import check_all
from checker.dump import Dump, load
from checker.figures import measure
from checker.foreign.engines import ENGINES
from checker.model import Model
from checker.report import is_green, report
from checker.selftest.damages import caught
from checker.soak import Wish, soak

BUILD = Path("build")


def main(argv: list[str]) -> int:
    asked = _parser().parse_args(argv)
    if asked.command == "mutants":
        return _mutants()
    if asked.command == "check":
        return _verdict(load(asked.dump), with_quotas=False, with_mutants=False)
    folders = asked.home.absolute(), asked.dump.absolute()
    engines = tuple(name for name in ENGINES if name in asked.foreign.split(","))
    wish = Wish(
        asked.minutes,
        asked.seed,
        *folders,
        asked.disk_mb,
        engines,
    )
    soak(wish)
    code = _verdict(load(wish.dump), with_quotas=True, with_mutants=True)
    if code == 0 and not asked.keep:
        shutil.rmtree(wish.home)
    print(f"dump: {asked.dump}   again: python -m checker check {asked.dump}   seed {asked.seed}")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="checker", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    soaking = commands.add_parser("soak", help="random load with random faults, then the checks")
    soaking.add_argument("--minutes", type=float, default=5.0)
    soaking.add_argument("--seed", type=int, default=int(time.time()))
    soaking.add_argument("--home", type=Path, default=BUILD / "soak" / "home")
    soaking.add_argument("--dump", type=Path, default=BUILD / "soak" / "dump")
    soaking.add_argument("--disk-mb", type=int, default=8000, help="the load ends when the platform's home is larger")
    soaking.add_argument(
        "--foreign", default="", help="who else writes the tables: deltalake, spark, or both, with a comma"
    )
    soaking.add_argument("--keep", action="store_true", help="keep the platform's home after a green run")
    checking = commands.add_parser("check", help="check a dump again")
    checking.add_argument("dump", type=Path)
    commands.add_parser("mutants", help="plant every known damage in a good dump and say which are found")
    return parser


def _verdict(dump: Dump, *, with_quotas: bool, with_mutants: bool) -> int:
    findings = check_all(dump)
    figures = measure(Model(dump))
    found = [is_found for _, is_found in caught()] if with_mutants else None
    mutants = (sum(found), len(found)) if found is not None else None
    print(report(findings, figures, mutants))
    green = is_green(findings, figures, with_quotas=with_quotas) and (found is None or all(found))
    return 0 if green else 1


def _mutants() -> int:
    results = caught()
    for planted, is_found in results:
        print(f"{'caught' if is_found else 'MISSED'}  {planted.found_by:4} {planted.name}")
    print(f"mutants caught {sum(is_found for _, is_found in results)}/{len(results)}")
    return 0 if all(is_found for _, is_found in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
