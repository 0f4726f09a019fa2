"""Microseconds since 1970, as the log's clock counts, to text for people and programs."""

from datetime import UTC, datetime


def iso(microseconds: int | None) -> str | None:
    return None if microseconds is None else datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat()
