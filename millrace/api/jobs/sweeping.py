"""Forgets what nobody can ask for any more: answered requests, published events, stop marks, files of dead uploads."""

import time
from datetime import timedelta

from sqlalchemy import delete, func, select

from millrace.exchange.mailboxes import Exchange
from millrace.exchange.rule_keys import RuleKeys
from millrace.model.imports import APPEND
from millrace.observe import gauge
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from millrace.store.records import find_import

SWEEP_SECONDS = 600.0
REQUESTS_KEPT = timedelta(days=1)
EVENTS_KEPT = timedelta(days=7)
# Of streamed rows there is an import for every few milliseconds; what became of them is told at once.
APPENDS_KEPT = timedelta(days=1)
STREAMS_KEPT = timedelta(days=30)
# Longer than any chunk of a stopped import can still be on its way.
STOPS_KEPT = timedelta(days=7)


def sweep(store: ControlStore, exchange: Exchange) -> None:
    answered = (t.requests.c.applied, t.requests.c.requested_us < _us_ago(REQUESTS_KEPT))
    announced = (t.events.c.published, t.events.c.kept_from < _us_ago(EVENTS_KEPT) / 1e6)
    appended = (t.imports.c.kind == APPEND, t.imports.c.ended_us < _us_ago(APPENDS_KEPT))
    with store.write() as connection:
        connection.execute(delete(t.requests).where(*answered))
        connection.execute(delete(t.events).where(*announced))
        connection.execute(delete(t.imports).where(*appended))
        for kept in (t.streams, t.row_digests):
            connection.execute(delete(kept).where(kept.c.touched_us < _us_ago(STREAMS_KEPT)))
        unsent = select(func.count()).select_from(t.events).where(t.events.c.published.is_(False))
        gauge("unsent_events", connection.execute(unsent).scalar_one())
    forget_keys(store, exchange.rule_keys)
    exchange.stops.forget_older_than(STOPS_KEPT)
    exchange.held_chunks.forget_released()
    exchange.held_chunks.forget_unfinished()


def _us_ago(kept: timedelta) -> int:
    return time.time_ns() // 1000 - kept // timedelta(microseconds=1)


def forget_keys(store: ControlStore, keys: RuleKeys) -> None:
    """Hashed keys of imports that are over: their reports are made."""
    for import_id in keys.imports():
        with store.read() as connection:
            imp = find_import(connection, import_id)
        if imp is None or imp.is_over:
            keys.forget(import_id)
