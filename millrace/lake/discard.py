"""Removes files that nobody can read any more, in a commit of its own. The next vacuum deletes their bytes."""

from collections.abc import Callable

from millrace.lake.actions import remove_action
from millrace.lake.log import Conflict, Snapshot, commit, refresh
from millrace.lake.store import Store
from millrace.model.errors import Unavailable

MOST_ATTEMPTS = 100


def discard_files(store: Store, is_unwanted: Callable[[str], bool]) -> int:
    """Returns the number of removed files."""
    snapshot = Snapshot()
    for _ in range(MOST_ATTEMPTS):
        snapshot = refresh(store, snapshot)
        unwanted = [file for file in snapshot.files.values() if is_unwanted(file.name)]
        if not unwanted:
            return 0
        try:
            commit(store, snapshot, [remove_action(file) for file in unwanted])
        except Conflict:
            continue
        return len(unwanted)
    raise Unavailable(f"{store.where} is written by others all the time.", remedy="Try again.")
