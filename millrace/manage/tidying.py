"""What the agreement's retention takes away: files done with, their reports, inputs that were read, old runs."""

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from millrace.manage.openrun import text_of
from millrace.staging.folders import Staging
from millrace.staging.runs import SUCCEEDED, forget_runs, run_folders

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


def _read_until(staging: Staging) -> datetime | None:
    runs = (folder.read() for folder in run_folders(staging))
    begun = next((run.started_at for run in runs if run.state == SUCCEEDED), None)
    return None if begun is None else datetime.fromisoformat(begun)


def _clear(root: Path, before: float) -> int:
    """Files last changed before then, and folders that are empty by that; links are never followed."""
    gone = 0
    for folder, names in _from_below(root):
        for name in names:
            with suppress(OSError):
                path = os.path.join(folder, name)
                if os.lstat(path).st_mtime < before:
                    os.unlink(path)
                    gone += 1
        if folder != str(root):
            with suppress(OSError):
                os.rmdir(folder)
    return gone


def _from_below(root: Path) -> Iterator[tuple[str, list[str]]]:
    for folder, _, names in os.walk(root, topdown=False, followlinks=False):
        yield folder, names
