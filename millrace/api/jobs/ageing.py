"""Asks the couriers of remote sinks, once a day, to delete rows that are older than was agreed.

It works like a truncation up to the version of that day: rows that come late and are as old are not taken either."""

from datetime import timedelta

from millrace.exchange.aged import AgedVersions
from millrace.exchange.ends import EndBox, RowsAged
from millrace.model.table import Definition
from millrace.sink.registry import has_ability

DAY_US = timedelta(days=1) // timedelta(microseconds=1)


def ask_to_let_go(ends: EndBox, aged: AgedVersions, definition: Definition, kept_from: int) -> bool:
    """Whether there was something new to ask for."""
    if not any(has_ability(target.kind, "deletes_aged") for target in definition.table.targets):
        return False
    version = kept_from - kept_from % DAY_US
    if aged.last(definition.tenant, definition.table.name) >= version:
        return False
    ends.put(RowsAged(definition.fingerprint, version))
    aged.note(definition.tenant, definition.table.name, version)
    return True
