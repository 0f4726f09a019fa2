"""The usage that an ended import adds to its tenant's account."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from millrace.model.imports import ALTER, APPEND, DISCARD, TRUNCATE, Import

# Interval between measurements of the tables' storage.
MEASURE_SECONDS = 60.0


def day_of(microseconds: int) -> str:
    """The day in UTC. Usage is counted by it."""
    return datetime.fromtimestamp(microseconds / 1e6, UTC).date().isoformat()


def seconds_left_of_day(now: datetime) -> float:
    """Seconds until the next day begins in UTC."""
    midnight = datetime(now.year, now.month, now.day, tzinfo=UTC) + timedelta(days=1)
    return (midnight - now.astimezone(UTC)).total_seconds()


def summed(used: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One for each tenant and day."""
    sums: dict[tuple[str, str], dict[str, Any]] = {}
    for usage in used:
        key = usage["tenant"], usage["day"]
        known = sums.get(key, {})
        sums[key] = {
            name: value if name in ("tenant", "day") else value + known.get(name, 0) for name, value in usage.items()
        }
    return list(sums.values())


def used_by(imp: Import, ended_us: int) -> dict[str, Any] | None:
    """None for an import that carries no rows."""
    if imp.kind in (ALTER, TRUNCATE, DISCARD):
        return None
    return {
        "tenant": imp.tenant,
        "day": day_of(ended_us),
        "bytes": int((imp.announced or {}).get("bytes", 0)),
        "rows_accepted": imp.counts.accepted,
        "rows_rejected": imp.counts.rejected,
        "rows_ignored": imp.counts.ignored,
        "imports": int(imp.kind != APPEND),
        "appends": int(imp.kind == APPEND),
        "chunks": imp.counts.chunks,
    }
