"""Sinks: waived by someone, or with something to announce."""

from dataclasses import replace

from millrace.control.rules import rule
from millrace.control.rules.tables import known_table
from millrace.control.state import Announce, State, Step, Table
from millrace.model.errors import Missing
from millrace.model.imports import ALTER, TRUNCATE, Import
from millrace.model.ops.tables import NoteSink, SinkNoted, SinkWaived, WaiveSink
from millrace.model.sinks import ERROR_STORE


@rule(WaiveSink)
def waive(state: State, op: WaiveSink, at_us: int, partition: int) -> Step:
    """Imports under way no longer wait for the sink, and their END events say so. Imports may wait for a sink that the
    table no longer has, if they began before the change."""
    table, sink = _table(state, op), op.sink
    freed = [imp for imp in state.imports.values() if _waits_for(imp, sink) and not imp.is_over]
    is_declared = sink == ERROR_STORE or any(target.name == sink for target in table.definition.table.targets)
    if not is_declared and not freed and not op.is_draining:
        raise Missing(f"{op.tenant}/{op.table} has no sink {sink!r}.", code="no_sink")
    for imp in freed:
        waived = sorted({*imp.options.get("waived", ()), sink})
        left = tuple(name for name in imp.sinks if name != sink)
        state = state.with_import(replace(imp, sinks=left, options={**imp.options, "waived": waived}))
    ids = [imp.id for imp in freed]
    event = Announce("sink.waived", f"{op.tenant}/{table.name}", {"sink": sink, "imports": ids})
    return state, (event,), SinkWaived(sink, tuple(ids), table.last_version)


def _table(state: State, op: WaiveSink) -> Table:
    """A table that was dropped may still have something waiting for it."""
    return state.table if state.table is not None and op.is_draining else known_table(state, op)


def _waits_for(imp: Import, sink: str) -> bool:
    """Every import with rows may have rejected ones. Nobody declares the error store: it is no part of `sinks`."""
    return sink in imp.sinks or (sink == ERROR_STORE and imp.kind not in (TRUNCATE, ALTER))


@rule(NoteSink)
def note(state: State, op: NoteSink, at_us: int, partition: int) -> Step:
    """Announces what was seen of a sink; changes nothing."""
    event = Announce(f"sink.{op.what}", f"{op.tenant}/{op.table}", {"sink": op.sink, **op.data})
    return state, (event,), SinkNoted(op.sink)
