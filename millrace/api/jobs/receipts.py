"""What the receipt of an erasure says: the sinks that were emptied, what expires and when, what remains."""

from datetime import UTC, datetime, timedelta
from typing import Any

from millrace.sink.registry import has_ability
from millrace.wire.topics import DATA_KEPT_MS

EVENTS_DAYS, ANSWERS_DAYS = 7, 1
# By then no batch that names them is tried again.
DEFINITIONS_DAYS = 1


def emptied(sinks: list[dict[str, Any]], not_reached: list[dict[str, str]]) -> list[str]:
    late = {(one["table"], one["sink"]) for one in not_reached}
    return [
        f"{table['table']}: {sink['name']} ({sink['kind']})"
        for table in sinks
        for sink in table["sinks"]
        if (table["table"], sink["name"]) not in late
    ]


def expiring(ops_kept_days: int | None) -> list[dict[str, str | None]]:
    def latest(days: float) -> str:
        return (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="seconds")

    data_days = DATA_KEPT_MS / 86_400_000
    found = [
        ("records of raw-input, validated-input, import-error and progress: trimmed once processed", data_days),
        ("definitions of its tables, which a batch that is tried again may still ask for", DEFINITIONS_DAYS),
        ("events in Kafka", EVENTS_DAYS),
        ("answers to requests, in the control store", ANSWERS_DAYS),
    ]
    if ops_kept_days is not None:
        found.append(
            ("ops in the table log: names and declarations (the keys of streamed rows are gone)", ops_kept_days)
        )
    return [{"what": what, "at_the_latest": latest(days)} for what, days in found]


def remaining(ops_kept_days: int | None, sinks: list[dict[str, Any]], not_reached: list[dict[str, str]]) -> list[str]:
    left = [
        f"{one['table']}: rows in sink {one['sink']!r}, which did not answer: delete them there." for one in not_reached
    ]
    left += [
        f"{table['table']}: an empty table in sink {sink['name']!r} ({sink['kind']}): drop it there."
        for table in sinks
        for sink in table["sinks"]
        if has_ability(sink["kind"], "keeps_table")
    ]
    if ops_kept_days is None:
        left.append(
            "Ops in the table log (names, declarations): kept for ever unless kafka.ops_kept_days is set. "
            "The keys of streamed rows in them are gone."
        )
    return [*left, "Entries of the audit log: names only.", "Backups that were made outside the platform."]
