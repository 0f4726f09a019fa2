"""What would become of a file, or of raw chunks that a table was sent, by this declaration or another. Imports nothing."""

import asyncio
import base64
import binascii
import json
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from fastapi import Header, Query, Request
from pydantic import AwareDatetime
from sqlalchemy import select

from millrace.api.bodies import BodyBounds, takes
from millrace.api.deps import (
    ClusterDep,
    DecoderMbDep,
    ExchangeDep,
    SealingDep,
    SharesDep,
    StoreDep,
    guarded_router,
)
from millrace.api.documents.tables import find_table
from millrace.api.sealing import Sealing
from millrace.api.shares import Shares
from millrace.api.uploads.options import OptionsDep
from millrace.auth.access import allows
from millrace.declare.table import parse_table
from millrace.exchange.raw_chunks import RawChunks
from millrace.infer.process import WORK_SECONDS, what_if
from millrace.model.errors import Invalid, MillraceError
from millrace.model.imports import AMEND, APPEND, DELETE, LOAD, REPLAY
from millrace.model.names import checked_name
from millrace.model.roles import WRITER
from millrace.model.table import Definition, define
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from millrace.wire.client import Cluster
from millrace.wire.envelope import unpack_stamp
from millrace.wire.recent import RecentChunks

router = guarded_router(prefix="/v1", tags=["what-if"])
PATIENCE_SECONDS = 15.0
MOST_BYTES = 1 << 30
MOST_SPOOLED_BYTES = 4 << 30
MOST_EXAMPLES = 20
SAMPLE = BodyBounds(MOST_SPOOLED_BYTES, "Send the first rows of the file only.", seconds=3600.0)
MOST_CHUNKS = 1000
MOST_IMPORTS = 1000
BRINGING_ROWS = (LOAD, DELETE, AMEND, APPEND)
MAX_DECLARATION_BYTES = 8 << 20
# The clocks of the broker and of whoever appended a chunk may differ.
CLOCK_SLACK_MS = 60_000
LAST_DAY_US = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) * 1_000_000


@router.post("/tenants/{tenant}/tables/{table}/validate")
@allows(WRITER, by_table=True)
@takes(SAMPLE)
async def validate_file(
    tenant: str,
    table: str,
    request: Request,
    store: StoreDep,
    exchange: ExchangeDep,
    sealing: SealingDep,
    cluster: ClusterDep,
    options: OptionsDep,
    shares: SharesDep,
    decoder_mb: DecoderMbDep,
    rows: Annotated[int | None, Query(ge=1)] = None,
    examples: Annotated[int, Query(ge=0, le=MOST_EXAMPLES)] = 3,
    last: Annotated[int | None, Query(ge=1, le=MOST_CHUNKS)] = None,
    since: AwareDatetime | None = None,
    millrace_declaration: Annotated[str | None, Header()] = None,
) -> dict[str, Any]:
    """Judges the request's body as an import would; with `last`, the last so many raw chunks that the log still holds; with
    `since`, the raw chunks from that time on that the table keeps (`keep_raw_days`).

    The header Millrace-Declaration holds another declaration of the table to judge by: JSON, or base64 of deflated JSON."""
    definition = await asyncio.to_thread(_definition, store, tenant, table, millrace_declaration)
    bounds = {"rows": rows, "bytes": MOST_BYTES, "seconds": WORK_SECONDS, "examples": examples}
    job = {
        "definition": definition.to_json().decode(),
        "bounds": bounds,
        "chunks": last is not None or since is not None,
        "memory_bytes": decoder_mb << 20,
    }
    if since is not None:
        if last is not None:
            raise Invalid("`last` and `since` are both given.", remedy="Give one of them.")
        report = await _try_kept(store, exchange.raw_chunks, sealing, shares, definition, job, since)
    elif last is not None:
        report = await _try_chunks(store, sealing, cluster, shares, definition, job, last)
    else:
        limit = definition.table.max_file_bytes or MOST_SPOOLED_BYTES
        spool = str(await asyncio.to_thread(exchange.places.spool))
        # A spool takes an eighth more than the plain file at most.
        written = limit * 9 // 8 + (1 << 20)
        job |= {"options": {**options, "max_plain_bytes": limit}, "spool_dir": spool, "most_written": written}
        report = await _try_body(request, job, shares)
    judged_by = "table" if millrace_declaration is None else "declaration"
    return {**report, "judged_by": judged_by, "file": options.get("file_name")}


async def _try_body(request: Request, job: dict[str, Any], shares: Shares) -> dict[str, Any]:
    pieces = request.stream()
    try:
        async with shares.what_ifs.turn(PATIENCE_SECONDS), what_if(job) as apart:
            wanted = True
            async for piece in pieces:
                wanted = wanted and await apart.send(piece)
            return await apart.report()
    except MillraceError:
        # The rest of the body is read only so that its sender hears the answer.
        async for _ in pieces:
            pass
        raise


async def _try_chunks(
    store: ControlStore,
    sealing: Sealing,
    cluster: Cluster,
    shares: Shares,
    definition: Definition,
    job: dict[str, Any],
    last: int,
) -> dict[str, Any]:
    tenant, table, look_up = definition.tenant, definition.table.name, shares.look_ups.run
    imports, since_ms = await asyncio.to_thread(_latest_imports, store, tenant, table, last)
    recent = await look_up(RecentChunks, cluster)
    try:
        places, found_all = await look_up(recent.find, imports, last, since_ms)
        async with shares.what_ifs.turn(PATIENCE_SECONDS), what_if(job) as apart:
            for place in places:
                record = await look_up(recent.read, place)
                if record is None:
                    continue
                record = await look_up(sealing.opened, tenant, table, record)
                if not await apart.send(len(record).to_bytes(4, "little") + record):
                    break
            report = await apart.report()
    finally:
        await look_up(recent.close)
    return {**report, "asked_chunks": last, "looked_everywhere": found_all}


async def _try_kept(
    store: ControlStore,
    kept: RawChunks,
    sealing: Sealing,
    shares: Shares,
    definition: Definition,
    job: dict[str, Any],
    since: datetime,
) -> dict[str, Any]:
    tenant, table, look_up = definition.tenant, definition.table.name, shares.look_ups.run
    # A time zone may move the first and the last day out of the calendar.
    since_us = min(max(0, int(since.timestamp() * 1_000_000)), LAST_DAY_US)
    first, expected, replays = await asyncio.to_thread(_sent_since, store, tenant, table, since_us)
    paths = await look_up(kept.since, tenant, table, first)
    # What a bound leaves unread is there.
    present = len(paths)
    async with shares.what_ifs.turn(PATIENCE_SECONDS), what_if(job) as apart:
        for path in paths:
            record = await look_up(_opened, sealing, (tenant, table), path, replays)
            present -= record is None
            if record is not None and not await apart.send(len(record).to_bytes(4, "little") + record):
                break
        report = await apart.report()
    return {**report, "since": since.isoformat(), "missing_chunks": max(0, expected - present)}


def _opened(sealing: Sealing, table: tuple[str, str], path: Path, replays: frozenset[str]) -> bytes | None:
    """None if retention has deleted it meanwhile, or if its rows came before and were replayed."""
    try:
        record = path.read_bytes()
    except FileNotFoundError:
        return None
    header, _ = unpack_stamp(record)
    return None if header is not None and header.import_id in replays else sealing.opened(*table, record)


def _sent_since(store: ControlStore, tenant: str, table: str, since_us: int) -> tuple[int, int, frozenset[str]]:
    """The first version that counts, how many chunks the table was sent, and the imports that replayed some of their rows.
    What came before the table was dropped and declared again is not its own."""
    columns = (t.imports.c.id, t.imports.c.kind, t.imports.c.announced)
    sent = select(*columns).where(t.imports.c.tenant == tenant, t.imports.c.table_name == table)
    chunks, replays = 0, set()
    with store.read() as connection:
        first = max(since_us, find_table(connection, tenant, table).floor + 1)
        for row in connection.execute(sent.where(t.imports.c.first_version >= first)):
            if row.kind == REPLAY:
                replays.add(row.id)
            elif row.kind in BRINGING_ROWS:
                chunks += (row.announced or {}).get("chunks", 0)
    return first, chunks, frozenset(replays)


def _latest_imports(store: ControlStore, tenant: str, table: str, last: int) -> tuple[list[str], int]:
    """The imports that hold the last chunks, and the time since when their chunks may lie in the log."""
    columns = (t.imports.c.id, t.imports.c.begun_us, t.imports.c.announced)
    latest = select(*columns).where(t.imports.c.tenant == tenant, t.imports.c.table_name == table)
    # The others carry no rows, only a change for each sink.
    latest = latest.where(t.imports.c.kind.in_((*BRINGING_ROWS, REPLAY)))
    ids: list[str] = []
    chunks, since_ms = 0, 0
    with store.read() as connection:
        latest = latest.where(t.imports.c.first_version > find_table(connection, tenant, table).floor)
        for row in connection.execute(latest.order_by(t.imports.c.first_version.desc()).limit(MOST_IMPORTS)):
            if chunks >= last:
                break
            ids.append(row.id)
            chunks += (row.announced or {}).get("chunks", 0)
            since_ms = row.begun_us // 1000 - CLOCK_SLACK_MS
    return ids, max(0, since_ms)


def _definition(store: ControlStore, tenant: str, table: str, declared: str | None) -> Definition:
    if declared is None:
        with store.read() as connection:
            return find_table(connection, tenant, table)
    declaration = parse_table(_document(declared))
    if declaration.name != checked_name("table", table):
        raise Invalid(
            f"The declaration is of {declaration.name!r}, not of {table!r}.", remedy="Name the table it declares."
        )
    return define(checked_name("tenant", tenant), declaration, 0)


def _document(declared: str) -> dict[str, Any]:
    try:
        plain = declared.encode("latin-1") if declared.lstrip().startswith("{") else _inflated(declared)
        document = json.loads(plain)
    except (ValueError, RecursionError, binascii.Error, zlib.error) as error:
        raise Invalid(
            "Millrace-Declaration is neither JSON nor base64 of deflated JSON.", remedy="See docs/whatif.md."
        ) from error
    if not isinstance(document, dict):
        raise Invalid("Millrace-Declaration is no JSON object.")
    return document


def _inflated(declared: str) -> bytes:
    inflater = zlib.decompressobj()
    plain = inflater.decompress(base64.b64decode(declared, validate=True), MAX_DECLARATION_BYTES)
    if not inflater.eof:
        raise Invalid(f"Millrace-Declaration is cut off, or holds more than {MAX_DECLARATION_BYTES >> 20} MiB.")
    return plain
