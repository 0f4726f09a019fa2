"""Facts about delivered rows for the ledger, and refused rows for the error store. Kafka has them when a method returns."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

import pyarrow as pa

from millrace.deliver.delivery import RefusedRow
from millrace.deliver.queue import Item
from millrace.exchange.places import Places
from millrace.lake.errors_table import REJECTED_SCHEMA, SINK_RULE, stored_rejected
from millrace.lake.sidecar import StagedChunk, write_data_file
from millrace.model.chunk import ChunkVerdict
from millrace.model.facts import Durable, Fact, RowsRefused, to_dict
from millrace.model.names import chunk_id
from millrace.seal.keyring import Keyring
from millrace.sink.contract import StagedGroup
from millrace.wire.client import Appender
from millrace.wire.envelope import pack
from millrace.wire.topics import IMPORT_ERROR, PROGRESS

CONFIRM_SECONDS = 150.0


class FactWriter:
    def __init__(self, places: Places, appender: Appender, keyring: Keyring) -> None:
        self._places = places
        self._keyring = keyring
        self._appender = appender

    def write_durable(self, sink: str, chunks: tuple[tuple[str, int], ...]) -> None:
        if chunks:
            self._write(sink, Durable(sink, chunks))

    def write_refused(self, sink: str, items: Sequence[Item], refused: Sequence[RefusedRow]) -> None:
        """Rows that the target does not take go to the error store under its name. They are counted before their chunks are
        durable, so that the end of the import has them."""
        if not refused:
            return
        chunk_ids = {
            chunk.version: chunk.chunk_id
            for item in items
            if item.group.file and not item.is_backfill
            for chunk in item.group.file.chunks
        }
        counted: Counter[tuple[str, int]] = Counter()
        for row in refused:
            # Only the import is known of a row that was copied from another sink.
            import_id, _, number = chunk_ids.get(row.version, f"{row.import_id}/0").rpartition("/")
            self._keep(sink, items[0], row, import_id, int(number))
            counted[import_id, int(number)] += 1
        self._write(sink, RowsRefused(sink, tuple((*chunk, rows) for chunk, rows in sorted(counted.items()))))

    def _keep(self, sink: str, item: Item, row: RefusedRow, import_id: str, number: int) -> None:
        group = item.group
        verdict = ChunkVerdict(import_id, number, row.version, 1, 0, 1)
        reason = {"column": None, "rule": f"{SINK_RULE}{sink}", "message": row.message, "value": None}
        rejected = pa.table([[row.row], [0], [b""], [[reason]]], schema=REJECTED_SCHEMA)
        known = StagedChunk(f"{chunk_id(import_id, number)}@{sink}/{row.row}", 0, 1, row.version)
        key = group.file.sealed_by if group.file is not None else None
        store = self._places.store_for_rejects(self._keyring, group.tenant, group.table, key, import_id)
        staged = write_data_file(store, stored_rejected(verdict, rejected), (), f"{import_id}-{number}", (known,))
        record = pack(asdict(StagedGroup(group.tenant, group.table, group.definition, staged, ())))
        self._appender.append(IMPORT_ERROR, import_id.encode(), record, 0).result(CONFIRM_SECONDS)

    def _write(self, sink: str, fact: Fact) -> None:
        self._appender.append(PROGRESS, sink.encode(), pack(to_dict(fact)), 0).result(CONFIRM_SECONDS)
