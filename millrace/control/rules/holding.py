"""Imports that a quality rule holds: all their rows are durable, and someone must release or cancel them."""

from dataclasses import replace

from millrace.control.rules import imports, rule
from millrace.control.state import Announce, State, Step
from millrace.model.errors import Clash
from millrace.model.imports import COMPLETED, HELD, PROCESSING, outcome
from millrace.model.ops.imports import HoldImport, ImportReleased, ReleaseImport
from millrace.model.ops.results import ImportStatus
from millrace.model.quality import held_because


@rule(HoldImport)
def hold(state: State, op: HoldImport, at_us: int, partition: int) -> Step:
    """An import that fails anyway is not held; it ends at once. One that was released is not held again: the accountant may
    have asked twice."""
    imp = imports.known_import(state, op)
    if imp.state != PROCESSING or imp.announced is None or imp.options.get("released"):
        return state, (), ImportStatus(imp.id, imp.state)
    final, _ = outcome(imp, op.counts, op.failure, op.budget)
    if final != COMPLETED:
        return imports.settled(state, op, at_us)
    held = replace(imports.with_report(imp, op), state=HELD, error=held_because(op.quality, imp.id))
    data = {"table": f"{imp.tenant}/{imp.table}", "rules": op.quality["held"], "error": held.error}
    events = (Announce("import.held", imp.id, data), *imports.reported(held))
    return state.with_import(held), events, ImportStatus(imp.id, HELD)


@rule(ReleaseImport)
def release(state: State, op: ReleaseImport, at_us: int, partition: int) -> Step:
    """The import goes on to its end, although a rule is broken."""
    imp = imports.known_import(state, op)
    if imp.state != HELD:
        if imp.options.get("released"):
            return state, (), ImportStatus(imp.id, imp.state)
        raise Clash(
            f"Import {imp.id} is {imp.state}, not held.", remedy="Only a held import is released.", code="not_held"
        )
    by = {"released": {"at_us": at_us, "by": op.by}}
    released = replace(imp, state=PROCESSING, error=None, options={**imp.options, **by})
    event = Announce("import.released", imp.id, {"table": f"{imp.tenant}/{imp.table}", **by})
    return state.with_import(released), (event,), ImportReleased(imp.id)
