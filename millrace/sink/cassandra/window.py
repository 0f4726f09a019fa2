"""Sends batches to Cassandra without waiting for each answer, at most a window of them at a time."""

from collections.abc import Sequence
from threading import Semaphore
from typing import Any

import numpy as np
from cassandra.cluster import Session
from cassandra.query import BatchStatement, BatchType

from millrace.sink.cassandra.frames import Cells, EncodedBatch, Numbers, cuts, lay_out, routing_key

BATCHES_UNDER_WAY = 48
REQUEST_SECONDS = 30


class Window:
    """The first failure stops the window. Each batch goes to a replica of its partition."""

    def __init__(self, session: Session, keyspace: str) -> None:
        self._session = session
        self._keyspace = keyspace
        self._room = Semaphore(BATCHES_UNDER_WAY)
        self._failed: Exception | None = None

    def send(self, query_id: bytes, cells: Sequence[Cells], partitions: Numbers, key: Sequence[int]) -> None:
        """Rows in the order of their partitions. `key` are the positions of the partition columns among the cells."""
        rows = lay_out(query_id, cells)
        parts = [_KeyColumn(cells[place]) for place in key]
        for first, last in cuts(partitions, rows.starts):
            routing = routing_key([part.at(first) for part in parts])
            self._send(last - first, rows.batch(first, last), routing)

    def finish(self) -> None:
        for _ in range(BATCHES_UNDER_WAY):
            self._room.acquire()
        for _ in range(BATCHES_UNDER_WAY):
            self._room.release()
        if self._failed is not None:
            raise self._failed

    def send_one(self, statement: Any) -> None:
        """A statement as the driver knows it."""
        self._wait_for_room()
        self._session.execute_async(statement).add_callbacks(self._done, self._fail)

    def _wait_for_room(self) -> None:
        self._room.acquire()
        if self._failed is not None:
            self._room.release()
            raise self._failed

    def _send(self, rows: int, body: bytes, routing: bytes) -> None:
        self._wait_for_room()
        # What the driver makes of a statement, except that its message is already encoded.
        statement = BatchStatement(BatchType.UNLOGGED)
        statement.routing_key, statement.keyspace = routing, self._keyspace
        future = self._session._create_response_future(statement, None, False, None, REQUEST_SECONDS)
        future.message = EncodedBatch(rows, body, future.message.consistency_level)
        future._protocol_handler = self._session.client_protocol_handler
        future.send_request()
        future.add_callbacks(self._done, self._fail)

    def _done(self, _rows: Any) -> None:
        self._room.release()

    def _fail(self, error: Exception) -> None:
        self._failed = self._failed or error
        self._room.release()


class _KeyColumn:
    """A column of the partition key, cell by cell."""

    def __init__(self, cells: Cells) -> None:
        lengths = np.maximum(cells.lengths, 0)
        self._starts = np.concatenate([[0], np.cumsum(lengths)])
        self._data = cells.data

    def at(self, row: int) -> bytes:
        return self._data[self._starts[row] : self._starts[row + 1]].tobytes()
