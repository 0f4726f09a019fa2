"""Tries the new and changed sinks of a declaration before it is applied.

Raises Invalid if a sink answers and will not take rows. A sink that does not answer gives a warning."""

import threading
from concurrent.futures import Future, wait

from sqlalchemy import Connection

from millrace.api.documents.tables import targets_of
from millrace.deliver.probe import probe
from millrace.model.documents import DeclarationWarning
from millrace.model.sinks import DELTA_KIND, SinkTarget
from millrace.model.table import TableDeclaration
from millrace.sink.context import SinkContext
from millrace.sink.registry import refuse_strange, settings_class

PROBE_SECONDS = 12.0
WAITS = "Rows will wait for it; the check was skipped."


def sinks_to_try(connection: Connection, tenant: str, declaration: TableDeclaration) -> list[SinkTarget]:
    """Those that the table does not have already, as they are declared now."""
    known = targets_of(connection, tenant, declaration.name)
    return [target for target in declaration.targets if target.kind != DELTA_KIND and target not in known]


def try_sinks(
    targets: list[SinkTarget], context: SinkContext, *, really: bool = True
) -> tuple[DeclarationWarning, ...]:
    """All at the same time, for some seconds at most. Without `really`, checks only what needs no connection."""
    if not really:
        for target in targets:
            refuse_strange(target, settings_class(target.kind).of(target), context)
        return ()
    tries = [(target.name, _start_probe(target, context)) for target in targets]
    done, _ = wait([outcome for _, outcome in tries], PROBE_SECONDS)
    return tuple(
        warning for name, outcome in tries if (warning := _warning(name, outcome, outcome in done)) is not None
    )


def _start_probe(target: SinkTarget, context: SinkContext) -> "Future[str | None]":
    """In a daemon thread: a probe that hangs does not keep the server from stopping."""
    outcome: Future[str | None] = Future()

    def run() -> None:
        try:
            outcome.set_result(probe(target, context))
        except Exception as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name="probe", daemon=True).start()
    return outcome


def _warning(sink: str, outcome: "Future[str | None]", is_done: bool) -> DeclarationWarning | None:
    if not is_done:
        return DeclarationWarning(f"sinks.{sink}", f"did not answer within {PROBE_SECONDS:g} s.", WAITS)
    said = outcome.result()
    return None if said is None else DeclarationWarning(f"sinks.{sink}", "is away.", said)
