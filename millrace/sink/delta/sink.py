"""The Delta sink: staged files become part of their tables, one commit per batch and table. The last version wins."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from millrace.exchange.definitions import DefinitionStore
from millrace.exchange.places import Places
from millrace.lake.batch import (
    DefinedFile,
    Definitions,
    Publication,
    WriteBatch,
    forget_published,
    keep_unpublished,
    unpublished_files,
)
from millrace.lake.checkpoint import LOG_FOLDER
from millrace.lake.schema import TableSpec, spec_of
from millrace.lake.state import NO_FLOOR
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.model.chunk import PUBLISH, ROWS, TRUNCATE
from millrace.model.errors import KeyGone
from millrace.model.sinks import ERROR_STORE
from millrace.model.table import Definition
from millrace.observe import log
from millrace.seal.files import unseal
from millrace.seal.keyring import Keyring
from millrace.sink.context import SinkContext
from millrace.sink.contract import StagedGroup
from millrace.sink.delta.error_copies import ErrorCopies
from millrace.sink.delta.faults import table_failure
from millrace.sink.delta.places import is_kept_here
from millrace.sink.delta.upkeep import Upkeep

OPEN_TABLES = 2048


class DeltaSink:
    """Accepted rows, at lake/<tenant>/<table>."""

    name = "delta"

    def __init__(self, places: Places, definitions: DefinitionStore, upkeep: Upkeep, keyring: Keyring) -> None:
        self._places = places
        self._definition = definitions.read
        self._keyring = keyring
        self._tables = OpenTables(upkeep, places)

    def write(self, groups: Sequence[StagedGroup]) -> Sequence[StagedGroup]:
        root = self._places.table(groups[0].tenant, groups[0].table)
        with self._tables.failing_alone(root, self._places):
            return self._write(groups)

    def _write(self, groups: Sequence[StagedGroup]) -> Sequence[StagedGroup]:
        """1. Keep files that await publication. 2. Unseal the others, and those that are published now. 3. Commit these.
        4. Forget what was published. Each step may happen again."""
        groups = [group for group in groups if is_kept_here(self._definition(group.definition))]
        if not groups:
            return groups
        newest = max((self._definition(group.definition) for group in groups), key=lambda one: one.age)
        root = self._places.table(newest.tenant, newest.table.name)
        table = self._tables.get(root, spec_of(newest), self._definition)
        publications = tuple(Publication(group.import_id, group.version) for group in groups if group.kind == PUBLISH)
        visible = self._visible(table, [group for group in groups if group.kind == ROWS])  # 1
        for publication in publications:
            visible += unpublished_files(table.store, publication.import_id, self._definition)
        sealed = [delivery for delivery in visible if not self._is_open(delivery, newest, table)]  # 2
        floor = max((group.version for group in groups if group.kind == TRUNCATE), default=NO_FLOOR)
        readable = tuple(delivery for delivery in visible if delivery not in sealed)
        self._tables.write(table, WriteBatch(readable, floor, newest, publications))  # 3
        for publication in publications:
            forget_published(table.store, publication.import_id)  # 4
        return _without(groups, sealed)

    def _visible(self, table: LakeTable, groups: Iterable[StagedGroup]) -> list[DefinedFile]:
        """The files that need not await a publication. The others are kept beside the table."""
        visible, published = [], None
        for group in groups:
            if group.file is None:
                continue
            delivery = DefinedFile(group.file, self._definition(group.definition))
            if group.publish == "atomic":
                published = table.snapshot().transactions if published is None else published
                if Publication(group.import_id, 0).transaction_id not in published:
                    keep_unpublished(table.store, group.import_id, delivery)
                    continue
            visible.append(delivery)
        return visible

    def _is_open(self, delivery: DefinedFile, newest: Definition, table: LakeTable) -> bool:
        """Unseals the rows. False if their key is gone: the platform destroys a key only after all imports are over, but the
        owner of the KMS may do so earlier. Then nobody is told that the rows are durable."""
        if delivery.file.sealed_by is None and not delivery.file.is_aside:
            return True
        staged = self._places.staging_store(self._keyring, newest.tenant, newest.table.name)
        try:
            unseal(staged, delivery.file, table.store)
        except KeyGone as error:
            log("sealed_rows_passed_over", file=delivery.file.path, reason=str(error))
            return False
        return True


class ErrorStore:
    """Rejected rows, at errors/<tenant>/<table>."""

    name = ERROR_STORE

    def __init__(self, context: SinkContext, schema: pa.Schema, upkeep: Upkeep, keyring: Keyring) -> None:
        self._places = context.places
        self._keyring = keyring
        self._spec = TableSpec(name="errors", schema=schema, key=(), deletion_vectors="auto")
        self._tables = OpenTables(upkeep, context.places)
        self._copies = ErrorCopies(context, self._spec, upkeep) if context.lake.errors_location else None

    def write(self, groups: Sequence[StagedGroup]) -> Sequence[StagedGroup]:
        with self._tables.failing_alone(self._places.errors(groups[0].tenant, groups[0].table), self._places):
            return self._write(groups)

    def _write(self, groups: Sequence[StagedGroup]) -> Sequence[StagedGroup]:
        tenant, table = groups[0].tenant, groups[0].table
        store = self._places.error_store(self._keyring, tenant, table)
        files = [group.file for group in groups if group.file is not None]
        for file in files:
            if file.is_aside:
                # As they are: if they are sealed, that is bound to their names, not to their folder.
                unseal(self._places.store(self._places.staged(tenant, table)), file, self._places.store(store.root))
        if self._copies is not None:
            self._copies.write(store, tenant, table, files)
        opened = self._tables.get(store.root, self._spec, store=store)
        self._tables.write(opened, WriteBatch(tuple(DefinedFile(file) for file in files)))
        return groups


class OpenTables:
    """Handles on the tables written last. A handle knows its table's log position, so a commit costs only what it adds."""

    def __init__(self, upkeep: Upkeep, places: Places) -> None:
        self._upkeep, self._places = upkeep, places
        self._open: OrderedDict[Path, LakeTable] = OrderedDict()
        self._lock = threading.Lock()

    def get(
        self, root: Path, spec: TableSpec, definitions: Definitions | None = None, store: Store | None = None
    ) -> LakeTable:
        with self._lock:
            table = self._open.pop(root, None)
            if table is None or not (root / LOG_FOLDER).is_dir():
                # Also if the table was erased in the meantime: its handle remembers the old table.
                table = LakeTable(store or self._places.store(root), spec, definitions=definitions)
            self._open[root] = table
            if len(self._open) > OPEN_TABLES:
                self._open.popitem(last=False)
        return table

    def write(self, table: LakeTable, batch: WriteBatch) -> None:
        table.write(batch)
        rows = sum(delivery.file.rows + delivery.file.deleted_rows for delivery in batch.files)
        self._upkeep.note(table.store.root, table.spec, rows)

    @contextmanager
    def failing_alone(self, root: Path, places: Places) -> Iterator[None]:
        """What fails in the block is the trouble of the table at `root`, unless it is the platform's. The next write reads
        the table anew: whoever mends it may put an older state of it back."""
        try:
            yield
        except BaseException as error:
            with self._lock:
                self._open.pop(root, None)
            failure = table_failure(error, root, places.is_on_our_disk)
            if failure is None or failure is error:
                raise
            raise failure from error


def _without(groups: Sequence[StagedGroup], sealed: Sequence[DefinedFile]) -> Sequence[StagedGroup]:
    """The groups without those of imports whose rows cannot be read."""
    lost = {chunk.chunk_id.partition("/")[0] for delivery in sealed for chunk in delivery.file.chunks}
    return [group for group in groups if lost.isdisjoint(import_id for import_id, _ in group.chunks)]
