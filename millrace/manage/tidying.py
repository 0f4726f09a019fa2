"""What the agreement's retention takes away: files done with, their reports, inputs that were read, old runs."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from millrace.beneath.folder import enter
from millrace.beneath.trees import clear
from millrace.exchange.app_folders import Staging
from millrace.manage.logs import seal_logs
from millrace.manage.openrun import text_of
from millrace.seal.keyring import Keyring
from millrace.staging.runs import SUCCEEDED, forget_runs, run_folders
from millrace.staging.sealed import hour_seal

MOST_RUNS = 200


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


def _clear(path: Path, before: float) -> int:
    """Files last changed before then, and folders that are empty by that. Some of it belongs to programs."""
    try:
        with enter(path) as folder:
            return clear(folder, before)
    except FileNotFoundError:
        return 0
