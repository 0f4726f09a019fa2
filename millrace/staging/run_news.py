"""A run of a client app in, what is announced about it out."""

from millrace.exchange.app_news import STARTED, AppNote
from millrace.model.agreement import STREAM
from millrace.staging.runs import INTERRUPTED, RUNNING, SUCCEEDED, Run

_BEGUN = ("app", "mode", "cause", "due_at", "started_at")
_ENDED = ("ended_at", "state", "exit_code", "files", "rows", "spans")


def note_of(run: Run) -> AppNote:
    is_over = run.state != RUNNING
    data = {name: getattr(run, name) for name in (*_BEGUN, *(_ENDED if is_over else ()))}
    if is_over:
        data["reason"] = reason_of(run)
    return AppNote(run.tenant, run.id, _word(run) if is_over else STARTED, {"tenant": run.tenant, **data})


def _word(run: Run) -> str:
    """A stream app that the platform stops has done nothing wrong: it is started again, or nobody wants it any more. A batch
    that was cut off has not done its work."""
    if run.state == SUCCEEDED:
        return "succeeded"
    is_stopped = run.state == INTERRUPTED and run.mode == STREAM and run.error is not None
    return "stopped" if is_stopped else "failed"


def reason_of(run: Run) -> str | None:
    """Why it did not succeed, in a sentence."""
    if run.error is not None or run.state == SUCCEEDED:
        return run.error
    if run.exit_code is None:
        return "It was cut off: the ingestion managers were ended while it ran."
    ended = f"with code {run.exit_code}" if run.exit_code > 0 else f"by signal {-run.exit_code}"
    return f"The program ended {ended}."
