"""The checks, each on its own: a model in, findings out."""

from collections.abc import Callable

from checker.checks import (
    k01_lost,
    k02_phantom,
    k03_duplicate,
    k04_winner,
    k05_torn,
    k06_order,
    k07_log,
    k08_end,
    k09_progress,
    k10_errors,
    k11_schema,
    k12_isolation,
    k13_reads,
    k14_liveness,
    k15_durability,
    k16_notify,
    k17_alone,
    k18_walls,
    k19_foreign,
)
from checker.dump import Dump
from checker.findings import Findings
from checker.model import Model

CHECKS: dict[str, Callable[[Model], Findings]] = {
    "K1": k01_lost.check, "K2": k02_phantom.check, "K3": k03_duplicate.check, "K4": k04_winner.check,
    "K5": k05_torn.check, "K6": k06_order.check, "K7": k07_log.check, "K8": k08_end.check,
    "K9": k09_progress.check, "K10": k10_errors.check, "K11": k11_schema.check, "K12": k12_isolation.check,
    "K13": k13_reads.check, "K14": k14_liveness.check, "K15": k15_durability.check, "K16": k16_notify.check,
    "K17": k17_alone.check, "K18": k18_walls.check, "K19": k19_foreign.check,
}  # fmt: skip


def check_all(dump: Dump) -> list[Findings]:
    model = Model(dump)
    return [check(model) for check in CHECKS.values()]
