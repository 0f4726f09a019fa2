"""The connectors that a process holds open: one per target, each with its connections; the least recently used goes first."""

from collections import OrderedDict
from contextlib import suppress

from millrace.model.sinks import SinkTarget
from millrace.sink.connector import Connector
from millrace.sink.context import SinkContext
from millrace.sink.registry import open_connector


class Opened:
    def __init__(self, most: int) -> None:
        self._most = most
        self._sinks: OrderedDict[str, Connector] = OrderedDict()

    def get(self, target: SinkTarget, context: SinkContext) -> Connector:
        """Equal settings share a connection. Whether the target's address is allowed is checked for each new connection."""
        key = repr(target)
        sink = self._sinks.pop(key, None)
        if sink is None:
            sink = open_connector(target, context)
        self._sinks[key] = sink
        if len(self._sinks) > self._most:
            _close(self._sinks.popitem(last=False)[1])
        return sink

    def forget(self, target: SinkTarget) -> None:
        """After a failure the connection may be broken; the other targets keep theirs."""
        sink = self._sinks.pop(repr(target), None)
        if sink is not None:
            _close(sink)


def _close(sink: Connector) -> None:
    with suppress(Exception):
        sink.close()
