"""Copies of rejected rows, as Delta tables in the operator's bucket or HDFS: for other readers, and in case this disk is
lost. Sealed rows are not copied."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from millrace.lake.batch import DefinedFile, WriteBatch
from millrace.lake.checkpoint import LOG_FOLDER
from millrace.lake.remote import RemoteStore
from millrace.lake.removal import delete_table
from millrace.lake.schema import TableSpec
from millrace.lake.sidecar import StagedFile
from millrace.lake.table import LakeTable
from millrace.seal.files import SealedStore
from millrace.sink.context import SinkContext
from millrace.sink.delta.places import remote_store
from millrace.sink.delta.settings import ERRORS_PLACE
from millrace.sink.delta.upkeep import Upkeep

OPEN_TABLES = 256


def copies_of_errors(context: SinkContext, tenant: str, table: str) -> RemoteStore | None:
    """None if the operator keeps no copies, or this table has none."""
    if context.lake.errors_location is None:
        return None
    store = remote_store(context, ERRORS_PLACE, tenant, table)
    return store if store.list(LOG_FOLDER) else None


def delete_copies(context: SinkContext, tenant: str, table: str) -> None:
    store = copies_of_errors(context, tenant, table)
    if store is not None:
        delete_table(store)


class ErrorCopies:
    def __init__(self, context: SinkContext, spec: TableSpec, upkeep: Upkeep) -> None:
        self._context = context
        self._spec = spec
        self._upkeep = upkeep
        self._table = lru_cache(OPEN_TABLES)(self._open)

    def write(self, here: SealedStore, tenant: str, table: str, files: Sequence[StagedFile]) -> None:
        """Adds what is missing. Idempotent."""
        try:
            self._write(here, tenant, table, files)
        except BaseException:
            # Whoever mends the place may put an older state back: the next write reads it anew.
            self._table.cache_clear()
            raise

    def _write(self, here: SealedStore, tenant: str, table: str, files: Sequence[StagedFile]) -> None:
        copied = self._table(tenant, table)
        store = copied.store
        assert isinstance(store, RemoteStore)
        added = [file for file in files if store.exists(file.path) or _is_taken(here, store, file.path)]
        if added:
            copied.write(WriteBatch(tuple(DefinedFile(file) for file in added)))
            self._upkeep.note(store.root, self._spec, sum(file.rows for file in added), ERRORS_PLACE)

    def _open(self, tenant: str, table: str) -> LakeTable:
        return LakeTable(remote_store(self._context, ERRORS_PLACE, tenant, table), self._spec)


def _is_taken(here: SealedStore, store: RemoteStore, name: str) -> bool:
    try:
        if here.is_sealed(name):
            return False
        store.adopt(name, Path(here.path(name)))
    except FileNotFoundError:
        # Both here and in the copy, it was merged into another file.
        return False
    return True
