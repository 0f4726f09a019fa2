"""Deletes all files of a table, also those that only older versions of it name."""

from concurrent.futures import ThreadPoolExecutor

from millrace.lake.batch import FOLDER as UNPUBLISHED_FOLDER
from millrace.lake.checkpoint import LOG_FOLDER
from millrace.lake.keys import KEYS_FOLDER, RUNS_FOLDER
from millrace.lake.log import load
from millrace.lake.store import TEMPORARY_FOLDER, Store
from millrace.lake.tombstones import TOMBSTONES_FOLDER

_FOLDERS = ("", KEYS_FOLDER, RUNS_FOLDER, TOMBSTONES_FOLDER, UNPUBLISHED_FOLDER, TEMPORARY_FOLDER, "_millrace")
DELETED_AT_ONCE = 8


def delete_table(store: Store) -> int:
    """Returns how many files were there. The log goes last: after an interruption the table is found again."""
    log = [entry.name for entry in store.list(LOG_FOLDER)]
    if not log:
        return 0
    # Another writer may have put data files into folders of its own.
    named = {file.name for file in load(store).files.values()}
    found = sorted(named.union(entry.name for folder in _FOLDERS for entry in store.list(folder)))
    with ThreadPoolExecutor(DELETED_AT_ONCE) as pool:
        list(pool.map(store.delete, found))
        list(pool.map(store.delete, log))
    return len(found) + len(log)
