"""Asks a target that failed whether it answers again, in this process: one that hangs takes no core from anybody."""

import threading

from millrace.deliver.probe import probe
from millrace.model.errors import MillraceError
from millrace.model.sinks import SinkTarget
from millrace.sink.context import SinkContext

ASK_SECONDS = 15.0


class Gate:
    def __init__(self, context: SinkContext) -> None:
        self._context = context
        self._asking: dict[str, threading.Thread] = {}

    def why_closed(self, target: SinkTarget) -> str | None:
        """None if the target takes rows; a question that nobody has answered yet is not asked twice."""
        key = repr(target)
        before = self._asking.get(key)
        if before is not None and before.is_alive():
            return "It does not answer."
        said: list[str | None] = []
        asking = threading.Thread(target=lambda: said.append(_ask(target, self._context)), name="gate", daemon=True)
        self._asking[key] = asking
        asking.start()
        asking.join(ASK_SECONDS)
        if asking.is_alive():
            return f"No answer within {ASK_SECONDS:g} s."
        del self._asking[key]
        return said[0] if said else "It could not be asked."


def _ask(target: SinkTarget, context: SinkContext) -> str | None:
    try:
        return probe(target, context)
    except MillraceError as error:
        return error.message
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:1000]
