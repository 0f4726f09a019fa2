"""Deletes all files of a table, also those that only older versions of it name."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from urllib.parse import unquote

import orjson

from millrace.lake.actions import checked_path, is_address
from millrace.lake.batch import FOLDER as UNPUBLISHED_FOLDER
from millrace.lake.checkpoint import LOG_FOLDER
from millrace.lake.feed import CHANGES_FOLDER
from millrace.lake.keys import KEYS_FOLDER, RUNS_FOLDER
from millrace.lake.log import load
from millrace.lake.store import TEMPORARY_FOLDER, Store
from millrace.lake.tombstones import TOMBSTONES_FOLDER
from millrace.model.errors import Corrupt, TooLarge, Unavailable

_FOLDERS = (
    "",
    CHANGES_FOLDER,
    KEYS_FOLDER,
    RUNS_FOLDER,
    TOMBSTONES_FOLDER,
    UNPUBLISHED_FOLDER,
    TEMPORARY_FOLDER,
    "_millrace",
)
DELETED_AT_ONCE = 8


def delete_table(store: Store) -> int:
    """Returns how many files were there. The log goes last: after an interruption the table is found again."""
    log = [entry.name for entry in store.list(LOG_FOLDER)]
    if not log:
        return 0
    # Another writer may have put data files into folders of its own.
    found = sorted(_named(store, log).union(entry.name for folder in _FOLDERS for entry in store.list(folder)))
    with ThreadPoolExecutor(DELETED_AT_ONCE) as pool:
        list(pool.map(partial(_delete, store), found))
        list(pool.map(store.delete, log))
    return len(found) + len(log)


def _delete(store: Store, name: str) -> None:
    # What is behind a link out of the table's folder is not ours either.
    with suppress(Unavailable):
        store.delete(name)


def _named(store: Store, log: Sequence[str]) -> set[str]:
    """The data files that the table names. An interrupted deletion leaves a part of the log, which is no table any more:
    then all that its entries ever named, as far as they can be read. Files outside of the table's folder are not ours."""
    try:
        paths = list(load(store).files)
    except (Corrupt, TooLarge):
        paths = [path for entry in log if entry.endswith(".json") for path in _added(store.read(entry))]
    return {unquote(path) for path in paths if _is_plain(path)}


def _added(entry: bytes) -> Iterator[str]:
    for line in entry.splitlines():
        with suppress(ValueError, LookupError, TypeError):
            if "add" in (action := orjson.loads(line)):
                yield str(action["add"]["path"])


def _is_plain(path: str) -> bool:
    with suppress(ValueError):
        return not is_address(checked_path(path))
    return False
