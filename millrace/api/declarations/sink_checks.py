"""Tries the new and changed sinks of a declaration before it is applied.

Raises Invalid if a sink answers and will not take rows. A sink that does not answer gives a warning."""

import threading

from sqlalchemy import Connection

from millrace.api.documents.tables import targets_of
from millrace.deliver.probe import probe
from millrace.model.documents import DeclarationWarning
from millrace.model.sinks import DELTA_KIND, SinkTarget
from millrace.model.table import TableDeclaration
from millrace.sink.context import SinkContext
from millrace.sink.registry import refuse_private, settings_class

PROBE_SECONDS = 12.0
WAITS = "Rows will wait for it; the check was skipped."


def sinks_to_try(connection: Connection, tenant: str, declaration: TableDeclaration) -> list[SinkTarget]:
    """Those that the table does not have already, as they are declared now."""
    known = targets_of(connection, tenant, declaration.name)
    return [target for target in declaration.targets if target.kind != DELTA_KIND and target not in known]


def try_sinks(
    targets: list[SinkTarget], context: SinkContext, *, really: bool = True
) -> tuple[DeclarationWarning, ...]:
    """All at the same time, each for some seconds at most. Without `really`, checks only what needs no connection."""
    if not really:
        for target in targets:
            refuse_private(settings_class(target.kind).of(target), context)
        return ()
    tries = [_Try(target, context) for target in targets]
    for one in tries:
        one.thread.join(PROBE_SECONDS)
    return tuple(warning for one in tries if (warning := one.outcome()) is not None)


class _Try:
    def __init__(self, target: SinkTarget, context: SinkContext) -> None:
        self._target = target
        self._context = context
        self._said: str | None = None
        self._failed: Exception | None = None
        self.thread = threading.Thread(target=self._run, name="probe", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._said = probe(self._target, self._context)
        except Exception as error:
            self._failed = error

    def outcome(self) -> DeclarationWarning | None:
        field = f"sinks.{self._target.name}"
        if self.thread.is_alive():
            return DeclarationWarning(field, f"did not answer within {PROBE_SECONDS:g} s.", WAITS)
        if self._failed is not None:
            raise self._failed
        return None if self._said is None else DeclarationWarning(field, "is away.", self._said)
