"""The quality report in an op about an import: it is kept with the import and announced as an event."""

from dataclasses import replace

from millrace.control.state import Announce
from millrace.model.imports import APPEND, Import
from millrace.model.ops.imports import SettledOp
from millrace.model.quality import BROKEN, summary


def with_report(imp: Import, op: SettledOp) -> Import:
    return imp if op.quality is None else replace(imp, options={**imp.options, "quality": op.quality})


def reported(imp: Import) -> tuple[Announce, ...]:
    """Rows of senders come in many small imports: of these only broken rules are announced."""
    report = imp.options.get("quality")
    if report is None or (imp.kind == APPEND and not any(rule["verdict"] == BROKEN for rule in report["rules"])):
        return ()
    data = {"table": f"{imp.tenant}/{imp.table}", "state": imp.state, **summary(report)}
    return (Announce("import.quality", imp.id, data),)
