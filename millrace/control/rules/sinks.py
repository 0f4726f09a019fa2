"""Sinks: given up by someone, or with something to tell."""

from dataclasses import replace

from millrace.control.rules.tables import known_table
from millrace.control.state import Announce, State, Step
from millrace.model.errors import Missing
from millrace.model.ops import Op


def waive(state: State, op: Op, at_us: int, partition: int) -> Step:
    """Imports under way no longer wait for the sink; their ends will say so. A sink that was taken from the table may still
    be waited for by imports that began before."""
    table, sink = known_table(state, op), op.body["sink"]
    freed = [imp for imp in state.imports.values() if sink in imp.sinks and not imp.is_over]
    is_declared = any(target.name == sink for target in table.definition.table.targets)
    if not is_declared and not freed and not op.body.get("is_draining"):
        raise Missing(f"{op.tenant}/{op.subject} has no sink {sink!r}.", code="no_sink")
    for imp in freed:
        waived = sorted({*imp.options.get("waived", ()), sink})
        left = tuple(name for name in imp.sinks if name != sink)
        state = state.with_import(replace(imp, sinks=left, options={**imp.options, "waived": waived}))
    ids = [imp.id for imp in freed]
    event = Announce("sink.waived", f"{op.tenant}/{table.name}", {"sink": sink, "imports": ids})
    return state, (event,), {"sink": sink, "waived": ids, "below": table.last_version}


def note(state: State, op: Op, at_us: int, partition: int) -> Step:
    """What was seen of a sink is told to whoever listens; nothing else follows from it."""
    told = Announce(
        f"sink.{op.body['what']}", f"{op.tenant}/{op.subject}", {"sink": op.body["sink"], **op.body["data"]}
    )
    return state, (told,), {"sink": op.body["sink"]}
