"""What the agreement's retention takes away: files done with, their reports, inputs that were read, old runs."""

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from millrace.exchange.app_folders import Staging
from millrace.manage.logs import seal_logs
from millrace.manage.openrun import text_of
from millrace.seal.keyring import Keyring
from millrace.staging.runs import SUCCEEDED, forget_runs, run_folders
from millrace.staging.sealed import hour_seal

MOST_RUNS = 200
# Each level costs a descriptor while it is cleared.
MOST_LEVELS = 32
_TO_ENTER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def tidy(staging: Staging, retention_days: int) -> int:
    """How many files went. A file of `in` counts as read when a run that began behind its arrival has ended well; so does
    one of `arrived`, to which it went back."""
    oldest = datetime.now(UTC) - timedelta(days=retention_days)
    gone = sum(_clear(folder, oldest.timestamp()) for folder in (staging.done, staging.failed))
    read_until = _read_until(staging)
    if read_until is not None:
        gone += sum(_clear(folder, min(oldest, read_until).timestamp()) for folder in (staging.inbox, staging.arrived))
    forget_runs(staging, text_of(oldest), MOST_RUNS)
    return gone


def seal_left_logs(staging: Staging, keys: Callable[[], Keyring]) -> None:
    """Own logs of runs that are over and could not seal them: cut off by a crash, or without a seal. May take as long as the
    keeper of the keys does."""
    for folder in run_folders(staging):
        run = folder.read()
        if run.is_over and run.sealed and folder.has_own_logs:
            seal_logs(folder.own_logs, folder.sealed_own_logs, hour_seal(keys(), staging.tenant, run.id))


def _read_until(staging: Staging) -> datetime | None:
    runs = (folder.read() for folder in run_folders(staging))
    begun = next((run.given_at or run.started_at for run in runs if run.state == SUCCEEDED), None)
    return None if begun is None else datetime.fromisoformat(begun)


def _clear(root: Path, before: float) -> int:
    """Files last changed before then, and folders that are empty by that.

    Some of it belongs to programs, which may put a link in the place of any folder at any moment: each is entered from the
    one above it, and its files are named by it, never by a path."""
    try:
        folder = os.open(root, _TO_ENTER)
    except FileNotFoundError:
        return 0
    return _clear_inside(folder, before, MOST_LEVELS)


def _clear_inside(folder: int, before: float, levels: int) -> int:
    """Closes the folder."""
    gone = 0
    try:
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for name, is_folder in found:
            # Somebody else was quicker, or fills the folder again.
            with suppress(OSError):
                if is_folder and levels:
                    gone += _clear_inside(os.open(name, _TO_ENTER, dir_fd=folder), before, levels - 1)
                    os.rmdir(name, dir_fd=folder)
                elif not is_folder and os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime < before:
                    os.unlink(name, dir_fd=folder)
                    gone += 1
    finally:
        os.close(folder)
    return gone
