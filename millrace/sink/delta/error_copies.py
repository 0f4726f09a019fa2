"""Rejected rows once more, as Delta tables in the operator's bucket or HDFS: for readers of their own, and should this disk
be lost. What is sealed stays where its keys are."""

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from millrace.exchange.places import Places
from millrace.lake.batch import Batch, Delivery
from millrace.lake.checkpoint import LOG_FOLDER
from millrace.lake.remote import RemoteStore
from millrace.lake.schema import TableSpec
from millrace.lake.sidecar import StagedFile
from millrace.lake.store import TEMPORARY_FOLDER
from millrace.lake.table import LakeTable
from millrace.seal.files import SealedStore
from millrace.settings import Settings
from millrace.sink.delta.places import ERRORS_PLACE, remote_store
from millrace.sink.delta.upkeep import Upkeep
from millrace.sink.secrets import read_secret

OPEN_TABLES = 256


def copies_of_errors(places: Places, tenant: str, table: str) -> RemoteStore | None:
    """None if the operator keeps no copies, or there is none of this table."""
    if Settings().lake.errors_location is None:
        return None
    store = remote_store(places, ERRORS_PLACE, tenant, table, read_secret)
    return store if store.list(LOG_FOLDER) else None


def delete_copies(places: Places, tenant: str, table: str) -> None:
    store = copies_of_errors(places, tenant, table)
    if store is None:
        return
    # The log last: whoever breaks off finds the table again.
    for folder in ("", TEMPORARY_FOLDER, LOG_FOLDER):
        for entry in store.list(folder):
            store.delete(entry.name)


class ErrorCopies:
    def __init__(self, places: Places, spec: TableSpec, upkeep: Upkeep) -> None:
        self._places = places
        self._spec = spec
        self._upkeep = upkeep
        self._tables: OrderedDict[tuple[str, str], LakeTable] = OrderedDict()

    def write(self, here: SealedStore, tenant: str, table: str, files: Sequence[StagedFile]) -> None:
        """Adds what is not there yet. Done again it changes nothing."""
        copied = self._table(tenant, table)
        store = copied.store
        assert isinstance(store, RemoteStore)
        added = [file for file in files if store.exists(file.path) or _is_taken(here, store, file.path)]
        if added:
            copied.write(Batch(tuple(Delivery(file) for file in added)))
            self._upkeep.note(store.root, self._spec, sum(file.rows for file in added), ERRORS_PLACE)

    def _table(self, tenant: str, table: str) -> LakeTable:
        opened = self._tables.pop((tenant, table), None)
        if opened is None:
            opened = LakeTable(remote_store(self._places, ERRORS_PLACE, tenant, table, read_secret), self._spec)
        self._tables[tenant, table] = opened
        if len(self._tables) > OPEN_TABLES:
            self._tables.popitem(last=False)
        return opened


def _is_taken(here: SealedStore, store: RemoteStore, name: str) -> bool:
    try:
        if here.is_sealed(name):
            return False
        store.adopt(name, Path(here.path(name)))
    except FileNotFoundError:
        # Merged into another long ago, here and there.
        return False
    return True
