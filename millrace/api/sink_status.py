"""How an import stands in each of its sinks: what is durable, what waits for a sink that takes nothing, what was refused."""

from sqlalchemy import Connection

from millrace.account.ledger import refused_rows
from millrace.deliver.queue import Queue
from millrace.exchange.mailboxes import Exchange
from millrace.model.imports import Import
from millrace.model.sinks import DELTA_KIND


class SinkStatus:
    """For the documents of one request: how a queue is doing is looked at once."""

    def __init__(self, connection: Connection, exchange: Exchange | None) -> None:
        self._connection = connection
        self._exchange = exchange
        self._parked: dict[str, bool] = {}

    def of(self, imp: Import) -> dict[str, dict[str, int]]:
        refused = imp.options.get("refused", {}) if imp.is_over else refused_rows(self._connection, imp.id)
        return {
            sink: {
                "durable_chunks": imp.durable.get(sink, 0),
                "parked_chunks": self._parked_chunks(imp, sink),
                "refused_rows": refused.get(sink, 0),
            }
            for sink in imp.sinks
        }

    def _parked_chunks(self, imp: Import, sink: str) -> int:
        """Judged, and held back by a target that takes nothing at the moment."""
        waiting = imp.counts.chunks - imp.durable.get(sink, 0)
        return waiting if waiting > 0 and not imp.is_over and self._takes_nothing(imp, sink) else 0

    def _takes_nothing(self, imp: Import, sink: str) -> bool:
        key = f"{imp.definition}/{sink}"
        if key not in self._parked:
            self._parked[key] = self._look(imp, sink)
        return self._parked[key]

    def _look(self, imp: Import, sink: str) -> bool:
        if self._exchange is None:
            return False
        definition = self._exchange.definitions.read(imp.definition)
        target = next((one for one in definition.table.targets if one.name == sink), None)
        if target is None or target.kind == DELTA_KIND:
            return False
        state = Queue(self._exchange.places.queue(target.kind, imp.tenant, imp.table, sink)).state
        return state.parked_since is not None
