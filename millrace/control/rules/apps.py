"""Client apps: what the ingestion managers have to announce about their runs."""

from millrace.control.rules import rule
from millrace.control.state import Announce, State, Step
from millrace.model.errors import Missing
from millrace.model.ops.tenants import AppNoted, NoteApp


@rule(NoteApp)
def note(state: State, op: NoteApp, at_us: int, partition: int) -> Step:
    """Announces; changes nothing."""
    if state.tenant is None:
        raise Missing(f"There is no tenant {op.tenant!r}.", code="no_tenant")
    return state, (Announce(f"app.{op.what}", op.run, {"run": op.run, **op.data}),), AppNoted(op.run)
