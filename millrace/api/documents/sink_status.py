"""How an import stands in each of its sinks: what is durable, what waits for a sink that takes nothing, what was refused."""

from sqlalchemy import Connection

from millrace.account.ledger import refused_rows
from millrace.exchange.queues import parked_targets
from millrace.model.imports import Import


class SinkStatus:
    """For the documents of one request: the queues of a table are read once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._parked: dict[tuple[str, str], set[str]] = {}

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
        if waiting <= 0 or imp.is_over:
            return 0
        place = imp.tenant, imp.table
        if place not in self._parked:
            self._parked[place] = parked_targets(self._connection, *place)
        return waiting if sink in self._parked[place] else 0
