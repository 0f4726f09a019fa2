"""The connectors that a process holds open: one per target, each with its connections; the least recently used goes first."""

from collections import OrderedDict
from contextlib import suppress

from millrace.model.sinks import SinkTarget
from millrace.model.table import Definition
from millrace.sink.connector import Connector, Definitions
from millrace.sink.context import SinkContext
from millrace.sink.registry import open_connector


class Opened:
    def __init__(self, most: int) -> None:
        self._most = most
        self._sinks: OrderedDict[str, Connector] = OrderedDict()
        # The definition that a target's table was prepared for last.
        self._prepared: dict[tuple[str, str, str], str] = {}

    def get(self, target: SinkTarget, context: SinkContext) -> Connector:
        """Equal settings of a tenant share a connection. Whether the target's address and secrets are allowed is checked for
        each new connection."""
        key = _key(target, context)
        sink = self._sinks.pop(key, None)
        if sink is None:
            sink = open_connector(target, context)
            # It prepares its tables again.
            self._prepared = {table: known for table, known in self._prepared.items() if table[0] in self._sinks}
        self._sinks[key] = sink
        if len(self._sinks) > self._most:
            _close(self._sinks.popitem(last=False)[1])
        return sink

    def prepare(
        self, target: SinkTarget, context: SinkContext, definition: Definition, definitions: Definitions
    ) -> None:
        """Once for each definition while the connector is open."""
        table = _key(target, context), definition.tenant, definition.table.name
        if self._prepared.get(table) != definition.fingerprint:
            self._sinks[table[0]].prepare(definition, definitions)
            self._prepared[table] = definition.fingerprint

    def forget(self, target: SinkTarget, context: SinkContext) -> None:
        """After a failure the connection may be broken; the other targets keep theirs."""
        sink = self._sinks.pop(_key(target, context), None)
        if sink is not None:
            _close(sink)


def _key(target: SinkTarget, context: SinkContext) -> str:
    return f"{context.tenant} {target!r}"


def _close(sink: Connector) -> None:
    with suppress(Exception):
        sink.close()
