"""K18: a hostile client app reaches, changes and learns nothing of others, and the other tenants' imports go on."""

from checker.findings import Findings
from checker.model import Model
from checker.oplog import SETTLE

ATTACK = "ATTACK"


def check(model: Model) -> Findings:
    found = Findings("K18", "walls")
    owners = {imported.id: imported.tenant for imported in model.imports.values()}
    ends = [(op.at_ms / 1000, owners.get(op.subject)) for op in model.ops if op.kind == SETTLE]
    for attack in (fault for fault in model.dump.nemesis if fault["signal"] == ATTACK):
        when = f"in the attack at {attack['t_wall']:.0f}"
        for what in ("reached", "changed", "leaked"):
            found.that(not attack[what], f"{what} {when}: {attack[what][:3]}")
        if attack["is_whole"]:
            found.that(attack["attacks"] > 0, f"the program of {attack['target']} was not run {when}")
            meanwhile = [owner for at, owner in ends if attack["t_wall"] <= at <= attack["ended_wall"]]
            found.that(bool({*meanwhile} - {None}), f"no import of another tenant ended {when}")
    return found
