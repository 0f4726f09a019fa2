"""K17: while a table is broken, imports of all other tables end as ever."""

from checker.dump import Document
from checker.findings import Findings
from checker.imported import Imported
from checker.model import Model
from checker.oplog import SETTLE

DAMAGE = "DAMAGE"
NEVER = float("inf")


def check(model: Model) -> Findings:
    found = Findings("K17", "waits alone")
    settled = {op.subject: op.at_ms for op in reversed(model.ops) if op.kind == SETTLE}
    for fault in model.dump.nemesis:
        # Without a calm time, a wait may have other reasons.
        if fault["signal"] == DAMAGE and fault.get("noticed") and "calm_wall" in fault:
            _others_went_on(model, settled, fault, found)
    return found


def _others_went_on(model: Model, settled: dict[str, int], fault: Document, found: Findings) -> None:
    broken, calm, mended = (1000 * fault[name] for name in ("t_wall", "calm_wall", "mended_wall"))
    what = f"{fault['target']} was broken ({fault.get('way')})"
    others = [each for each in model.imports.values() if f"{each.tenant}/{each.table}" != fault["target"]]
    ended = [each for each in others if broken <= settled.get(each.id, NEVER) <= mended]
    found.that(bool(ended), f"no import of another table ended while {what}")
    for imported in others:
        end = settled.get(imported.id, NEVER)
        if imported.state == "completed" and end >= broken and _received(model, imported) <= calm:
            found.that(end <= mended, f"import {imported.id} of {imported.tenant}/{imported.table} waited while {what}")


def _received(model: Model, imported: Imported) -> float:
    """When all of it was in the log."""
    if imported.is_append:
        return max(float(imported.op.at_ms), imported.begun_ms)
    end = model.ends.get(imported.id)
    return NEVER if end is None else end.at_ms
