"""The whole application with a data plane of a few lines: chunks are judged where they come, rejected rows are stored,
imports settle. For what happens to rejected rows: no Kafka, no Spark."""

import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from millrace.api.uploads.in_flight import InFlight
from millrace.declare.table import parse_table
from millrace.lake.errors_table import ERRORS_SCHEMA, stored_rejected
from millrace.lake.schema import TableSpec
from millrace.lake.sidecar import StagedChunk, write_data_file
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.model.imports import Counts
from millrace.model.names import chunk_id
from millrace.model.ops.imports import EndImport, SettleImport
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from millrace.validate.judge import JudgedChunk, judge
from millrace.wire.client import Appended
from millrace.wire.envelope import unpack_rows, unpack_stamp
from millrace.wire.topics import QUICK_PARTITIONS
from tests.support.whole_app import AppPlatform


class KeptLog:
    """raw-input: what was appended, by import."""

    def __init__(self) -> None:
        self.records: dict[str, list[bytes]] = {}

    def append(self, topic: str, key: bytes, value: bytes, partition: int) -> "Future[Appended]":
        self.records.setdefault(key.decode(), []).append(value)
        done: Future[Appended] = Future()
        done.set_result(Appended(topic, partition, 0))
        return done


class JudgedPlatform(AppPlatform):
    raw_partitions = QUICK_PARTITIONS + 1

    def __init__(self, root: Path, private_targets: tuple[str, ...]) -> None:
        super().__init__(root, private_targets)
        self.appender = KeptLog()
        self.in_flight = InFlight(10_000, self.quotas.weight)
        self.accepted: dict[str, list[dict[str, Any]]] = {}
        # Imports are judged and settle as soon as they have been received.
        self.settles_at_once = True

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Any]:
        """Well, as far as commands ask."""
        async with super().running() as services:
            services.health = SimpleNamespace(parts=lambda: {"kafka": "ok"}, parked_tables=list)
            yield services

    def declare(self, *documents: dict[str, Any]) -> None:
        self.apply(DefineTenant("acme", agreement={}))
        for document in documents:
            declared = parse_table(document)
            self.apply(DefineTable("acme", declared.name, declaration=declared.to_dict()))

    def apply(self, op: Any) -> Any:
        applied = super().apply(op)
        if isinstance(op, EndImport) and applied.refusal is None and self.settles_at_once:
            self.settle(op.import_id)
        return applied

    def settle(self, import_id: str) -> None:
        """Judges all of the import, keeps what it brought and ends it."""
        judged = [self._judged(record) for record in self.appender.records.get(import_id, [])]
        self.accepted[import_id] = [row for one in judged for row in one.accepted.to_pylist()]
        table = None
        for one in judged:
            if one.rejected is not None:
                table = table or self._errors(import_id)
                self._reject(table, one.verdict, one.rejected)
        verdicts = [one.verdict for one in judged]
        sums = {name: sum(getattr(one, name) for one in verdicts) for name in ("accepted", "rejected")}
        counts = Counts(chunks=len(verdicts), read=sum(one.rows for one in verdicts), **sums)
        super().apply(SettleImport("acme", import_id, counts=counts, durable={"delta": len(verdicts)}, failure=None))

    def _judged(self, record: bytes) -> JudgedChunk:
        header, payload = unpack_stamp(record)
        assert header is not None
        return judge(header, unpack_rows(header, payload), self.exchange.definitions.read(header.definition))

    def _errors(self, import_id: str) -> LakeTable:
        header, _ = unpack_stamp(self.appender.records[import_id][0])
        assert header is not None
        name = self.exchange.definitions.read(header.definition).table.name
        return LakeTable(Store(self.home.table_errors("acme", name)), TableSpec("errors", ERRORS_SCHEMA))

    @staticmethod
    def _reject(table: LakeTable, verdict: Any, rejected: pa.Table) -> None:
        stored = stored_rejected(verdict, rejected)
        known = StagedChunk(chunk_id(verdict.import_id, verdict.number), 0, rejected.num_rows, 1)
        table.apply([write_data_file(table.store, stored, (), f"{verdict.import_id}-{verdict.number}", (known,))])


def command(home: Path, *args: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """A command of the CLI, as a user of that home runs it."""
    return subprocess.run(
        [sys.executable, "-m", "millrace.cli.main", *args],
        env={"MILLRACE_HOME": str(home), "PATH": "", "HOME": str(home), "COLUMNS": "200"},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def lines(rows: Iterable[str], end: str = "\n") -> str:
    return "".join(row + end for row in rows)
