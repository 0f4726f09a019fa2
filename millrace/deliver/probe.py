"""Tries a target before anyone relies on it: a target in, nothing or what is wrong with it out.

A server that cannot be reached now may be there later, so that is a warning, not a refusal. One that answers and does not let
us write is refused, with its own words."""

import threading
from contextlib import closing

from millrace.model.errors import Invalid, MillraceError, Unavailable
from millrace.model.sinks import SinkTarget
from millrace.sink.context import SinkContext
from millrace.sink.registry import open_connector, refuse_strange, settings_class
from millrace.sink.settings import ConnectorSettings

REACH_SECONDS = 3.0
ANSWER_SECONDS = 15.0


class Probe:
    """Asks targets that failed whether they answer again, in this process: one that hangs takes no core from a task."""

    def __init__(self, context: SinkContext) -> None:
        self._context = context
        self._asking: dict[str, threading.Thread] = {}

    def failure(self, tenant: str, target: SinkTarget) -> str | None:
        """None if the tenant's target takes rows. While a question is without an answer, the target is not asked again."""
        key = f"{tenant} {target!r}"
        before = self._asking.get(key)
        if before is not None and before.is_alive():
            return "It does not answer."
        answers: list[str | None] = []
        context = self._context.for_tenant(tenant)
        ask = lambda: answers.append(_failure(target, context))  # noqa: E731
        asking = threading.Thread(target=ask, name="probe", daemon=True)
        self._asking[key] = asking
        asking.start()
        asking.join(ANSWER_SECONDS)
        if asking.is_alive():
            return f"No answer within {ANSWER_SECONDS:g} s."
        del self._asking[key]
        return answers[0] if answers else "It could not be asked."


def _failure(target: SinkTarget, context: SinkContext) -> str | None:
    try:
        return probe(target, context)
    except MillraceError as error:
        return error.message
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:1000]


def probe(target: SinkTarget, context: SinkContext) -> str | None:
    """Does what a write will do. Returns why that could not be tried now; raises Invalid where it cannot work."""
    settings = settings_class(target.kind).of(target)
    refuse_strange(target, settings, context)
    _refuse_unreadable(target, settings, context)
    silent = _unreachable(settings, context)
    if silent is not None:
        return f"Sink {target.name!r} ({target.kind}) is away: {silent} What is imported will wait for it."
    try:
        with closing(open_connector(target, context)) as sink:
            sink.check()
    except Exception as error:
        raise _refusal(target, error) from error
    return None


def _refuse_unreadable(target: SinkTarget, settings: ConnectorSettings, context: SinkContext) -> None:
    """A secret that does not exist is wrong whether or not the server answers. A keeper that is away may be back later."""
    for reference in settings.references():
        try:
            context.secret(reference)
        except Unavailable:
            continue
        except Exception as error:
            raise _refusal(target, error) from error


def _unreachable(settings: ConnectorSettings, context: SinkContext) -> str | None:
    """Why none of the target's hosts takes a connection; a kind that names no host is always there."""
    known = [(host, port) for host, port in settings.places() if port]
    reasons = []
    for host, port in known:
        try:
            context.permitted.connect(host, port, REACH_SECONDS).close()
            return None
        except (OSError, Unavailable) as error:
            reasons.append(f"{host}:{port}: {error}")
    return f"{reasons[0].rstrip('.')}." if reasons else None


def _refusal(target: SinkTarget, error: Exception) -> Invalid:
    remedy = error.remedy if isinstance(error, MillraceError) else ""
    message = error.message if isinstance(error, MillraceError) else f"{type(error).__name__}: {error}"
    return Invalid(
        f"Sink {target.name!r} ({target.kind}) does not take rows: {' '.join(message.split())[:600]}",
        remedy=remedy
        or "Mend its host, credentials or permissions; or apply with --no-check to have rows wait for it.",
        code="sink_check",
    )
