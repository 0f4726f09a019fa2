"""What agreements let go with time: rejected rows after `data_retention_period_days`, rows in sinks after
`sink_retention_days`. Staging is tidied by the ingestion managers. Raw chunks go when they are processed,
or after the table's `keep_raw_days`.

Rows go by their version, which is the time of their import; bytes go from the disk when no reader can want them."""

import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from threading import Event

from sqlalchemy import Connection, func, or_, select

from millrace.api.documents.tables import tables_of
from millrace.api.jobs.erasing import clear_erased
from millrace.exchange.aged import AgedVersions
from millrace.exchange.ends import EndBox, RowsAged
from millrace.exchange.mailboxes import Exchange
from millrace.exchange.places import Places
from millrace.exchange.raw_chunks import RawChunks
from millrace.lake.checkpoint import LOG_FOLDER
from millrace.lake.errors_table import ERRORS_SCHEMA
from millrace.lake.read import rows_up_to
from millrace.lake.schema import TableSpec, spec_of
from millrace.lake.table import LakeTable
from millrace.lake.vacuum import RECORD, vacuum
from millrace.model.agreement import Agreement
from millrace.model.imports import DISCARD
from millrace.model.sinks import DELTA_KIND, REMOTE_DELTA_KIND, SinkTarget
from millrace.model.table import Definition
from millrace.observe import log, observe
from millrace.seal.keyring import Keyring
from millrace.settings import KEYS_HERE, KmsSettings
from millrace.sink.context import SinkContext
from millrace.sink.delta.error_copies import copies_of_errors
from millrace.sink.delta.places import remote_store
from millrace.sink.delta.settings import DeltaRemoteSettings
from millrace.sink.delta.upkeep import REMOVED_FILES_KEPT, STAGED_FILES_KEPT
from millrace.sink.registry import has_ability
from millrace.store import tables as t
from millrace.store.agreements import agreement_of
from millrace.store.engine import ControlStore

DAY_US = timedelta(days=1) // timedelta(microseconds=1)
FIRST_SECONDS, EVERY_SECONDS = 60.0, 3600.0
ERRORS_SPEC = TableSpec(name="errors", schema=ERRORS_SCHEMA, key=(), deletion_vectors="auto")


def keep_retention(
    store: ControlStore, exchange: Exchange, context: SinkContext, kms: KmsSettings, stopping: Event
) -> None:
    """Until the platform stops, once an hour."""
    wait = FIRST_SECONDS
    while not stopping.wait(wait):
        wait = EVERY_SECONDS
        let_go(store, exchange, context, time.time_ns() // 1000, kms)
        clear_erased(store, exchange, time.time_ns() // 1000)


def let_go(
    store: ControlStore, exchange: Exchange, context: SinkContext, now_us: int, kms: KmsSettings = KEYS_HERE
) -> int:
    """The number of tables that had rows to delete."""
    agreements: dict[str, Agreement] = {}
    with store.read() as connection:
        for tenant in connection.execute(select(t.tenants.c.name)).scalars():
            agreements[tenant] = agreement_of(connection, tenant) or Agreement(tenant)
        definitions = [one for one in tables_of(connection, None) if one.tenant in agreements]
        errors = {
            (one.tenant, one.table.name): _errors_over(connection, one, agreements[one.tenant], now_us)
            for one in definitions
        }
    gone, places, keyring = 0, exchange.places, exchange.keyring(kms)
    _forget_raw_chunks(exchange.raw_chunks, definitions, now_us)
    for definition in definitions:
        named = definition.tenant, definition.table.name
        where, days = "/".join(named), agreements[definition.tenant].sink_retention_days
        gone += _tried(f"{where}, rejected", partial(_forget_rejected, places, keyring, definition, errors[named]))
        _tried(f"{where}, copies of rejected", partial(_forget_copied, context, definition, errors[named]))
        if days is None:
            continue
        kept_from = now_us - days * DAY_US
        _tried(where, partial(ask_to_let_go, exchange.ends, exchange.aged, definition, kept_from))
        for target in definition.table.targets:
            gone += _tried(f"{where}, {target.name}", partial(_forget_rows, context, definition, target, kept_from))
    return gone


def _tried(where: str, work: Callable[[], bool]) -> bool:
    """A failure in one place, such as a missing secret or a damaged file, does not stop the others."""
    try:
        return work()
    except Exception as error:
        observe("trouble", kind="retention", error=f"{where}: {type(error).__name__}: {error}"[:500])
        return False


def _forget_raw_chunks(kept: RawChunks, definitions: Iterable[Definition], now_us: int) -> None:
    """A table that is gone keeps none, nor does one that no longer says so."""
    days = {(one.tenant, one.table.name): one.table.keep_raw_days for one in definitions}
    for tenant, table in kept.tables():
        wanted = days.get((tenant, table))
        # Of a table that keeps none, today's folder goes too.
        before = now_us + DAY_US if wanted is None else now_us - wanted * DAY_US
        _tried(f"{tenant}/{table}, raw chunks", partial(kept.forget, tenant, table, before))


def _forget_rejected(places: Places, keyring: Keyring, definition: Definition, version: int) -> bool:
    rejected = places.error_store(keyring, definition.tenant, definition.table.name)
    return (rejected.root / LOG_FOLDER).is_dir() and _forget(LakeTable(rejected, ERRORS_SPEC), version)


def _forget_copied(context: SinkContext, definition: Definition, version: int) -> bool:
    named = definition.tenant, definition.table.name
    copies = copies_of_errors(context, *named) if context.places.errors(*named).is_dir() else None
    return copies is not None and _forget(LakeTable(copies, ERRORS_SPEC), version)


def _forget_rows(context: SinkContext, definition: Definition, target: SinkTarget, version: int) -> bool:
    named = definition.tenant, definition.table.name
    if target.kind == DELTA_KIND and (context.places.table(*named) / LOG_FOLDER).is_dir():
        return _forget(LakeTable(context.places.table_store(*named), spec_of(definition)), version)
    if target.kind == REMOTE_DELTA_KIND:
        files = remote_store(context, DeltaRemoteSettings.of(target), *named)
        return _forget(LakeTable(files, spec_of(definition)), version)
    return False


def ask_to_let_go(ends: EndBox, aged: AgedVersions, definition: Definition, kept_from: int) -> bool:
    """Asks the couriers of remote sinks, once a day, to delete older rows. Returns whether there was something new to ask.

    It works like a truncation up to the version of that day: rows that come late and are as old are not taken either."""
    if not any(has_ability(target.kind, "deletes_aged") for target in definition.table.targets):
        return False
    version = kept_from - kept_from % DAY_US
    if aged.last(definition.tenant, definition.table.name) >= version:
        return False
    ends.put(RowsAged(definition.fingerprint, version))
    aged.note(definition.tenant, definition.table.name, version)
    return True


def _errors_over(connection: Connection, definition: Definition, agreement: Agreement, now_us: int) -> int:
    """The version up to which all imports ended longer ago than was agreed: an import that took long began long before."""
    kept_from = now_us - agreement.data_retention_days * DAY_US
    recent = select(func.min(t.imports.c.first_version)).where(
        t.imports.c.tenant == definition.tenant,
        t.imports.c.table_name == definition.table.name,
        t.imports.c.kind != DISCARD,
        or_(t.imports.c.ended_us.is_(None), t.imports.c.ended_us > kept_from),
    )
    oldest = connection.execute(recent).scalar()
    return kept_from if oldest is None else min(kept_from, int(oldest) - 1)


def _forget(table: LakeTable, version: int) -> bool:
    snapshot = table.snapshot()
    found = rows_up_to(table.store, snapshot, version)
    if found:
        table.apply([], floor=version)
        log("rows_let_go", table=table.store.where, rows=sum(len(positions) for positions in found.values()))
    if found or _has_unreferenced(table):
        vacuum(table.store, REMOVED_FILES_KEPT, STAGED_FILES_KEPT)
    return bool(found)


def _has_unreferenced(table: LakeTable) -> bool:
    """Files that a vacuum has seen and left for readers that may still hold them."""
    try:
        return len(table.store.read(RECORD)) > len(b"{}")
    except FileNotFoundError:
        return False
