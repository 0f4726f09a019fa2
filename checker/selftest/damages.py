"""The trial of the checker: every damage planted in a good run, one at a time; which of them were found?"""

from copy import deepcopy

from checker.checks import CHECKS
from checker.dump import Dump
from checker.model import Model
from checker.selftest import damaged_foreign, damaged_logs, damaged_stores, damaged_walls
from checker.selftest.good_run import good_run
from checker.selftest.planting import DAMAGES, Damage

__all__ = ["DAMAGES", "caught", "damaged_foreign", "damaged_logs", "damaged_stores", "damaged_walls"]


def caught(seed: int = 1) -> list[tuple[Damage, bool]]:
    """Each damage, and whether the check that must find it did."""
    good = good_run(seed)
    return [(each, _is_red(each, good)) for each in DAMAGES]


def _is_red(planted: Damage, good: Dump) -> bool:
    broken = deepcopy(good)
    planted.harm(broken)
    return CHECKS[planted.found_by](Model(broken)).violations > 0
