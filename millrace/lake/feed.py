"""Delta's change data feed of a table: whether it has one, what the log says about it, and the names it is made of."""

from collections.abc import Mapping
from datetime import timedelta

from millrace.lake.actions import Metadata

CHANGES_FOLDER = "_change_data"
TYPE_COLUMN = "_change_type"
INSERT, DELETE, BEFORE, AFTER = "insert", "delete", "update_preimage", "update_postimage"
PROPERTY, FEATURE = "delta.enableChangeDataFeed", "changeDataFeed"
LOG_RETENTION = "delta.logRetentionDuration"
# Readers of the feed need the log entries of all versions they ask for, as long as the changes are kept.
KEPT = timedelta(days=7)
# However fast commits follow each other: whoever opens the table lists so many entries.
MOST_VERSIONS = 20_000


def has_feed(metadata: Metadata | None) -> bool:
    return metadata is not None and metadata.configuration.get(PROPERTY, "false").lower() == "true"


def switched(configuration: Mapping[str, str], log_retention: timedelta, is_on: bool) -> dict[str, str]:
    """The configuration of a table with the feed, or without it from now on."""
    kept = max(KEPT, log_retention) if is_on else log_retention
    return {**configuration, PROPERTY: str(is_on).lower(), LOG_RETENTION: interval(kept)}


def interval(duration: timedelta) -> str:
    return f"interval {max(1, round(duration / timedelta(hours=1)))} hours"
