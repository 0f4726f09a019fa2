"""Imports that a rule of quality holds: everything of them is durable, and someone must release or cancel them."""

from dataclasses import replace

from millrace.control.rules import imports
from millrace.control.rules.reporting import reported, with_report
from millrace.control.state import Announce, State, Step
from millrace.model.errors import Clash
from millrace.model.imports import COMPLETED, HELD, PROCESSING, Counts, outcome
from millrace.model.ops import Op
from millrace.model.quality import held_because


def hold(state: State, op: Op, at_us: int, partition: int) -> Step:
    """Not an import that fails anyway: that ends at once."""
    imp = imports.known_import(state, op)
    if imp.state != PROCESSING or imp.announced is None:
        return state, (), {"import": imp.id, "state": imp.state}
    final, _ = outcome(imp, Counts(**op.body["counts"]), op.body.get("failure"), imports.budget_of(op))
    if final != COMPLETED:
        return imports.settle(state, op, at_us, partition)
    held = replace(with_report(imp, op), state=HELD, error=held_because(op.body["quality"], imp.id))
    data = {"table": f"{imp.tenant}/{imp.table}", "rules": op.body["quality"]["held"], "error": held.error}
    told = (Announce("import.held", imp.id, data), *reported(held))
    return state.with_import(held), told, {"import": imp.id, "state": HELD}


def release(state: State, op: Op, at_us: int, partition: int) -> Step:
    """It goes on to its end, whatever the rules said."""
    imp = imports.known_import(state, op)
    if imp.state != HELD:
        if imp.options.get("released"):
            return state, (), {"import": imp.id, "state": imp.state}
        raise Clash(
            f"Import {imp.id} is {imp.state}, not held.", remedy="Only a held import is released.", code="not_held"
        )
    by = {"released": {"at_us": at_us, "by": str(op.body.get("by", ""))}}
    released = replace(imp, state=PROCESSING, error=None, options={**imp.options, **by})
    event = Announce("import.released", imp.id, {"table": f"{imp.tenant}/{imp.table}", **by})
    # Without a state: the ledger then looks at the import again.
    return state.with_import(released), (event,), {"import": imp.id, "released": True}
