"""The end of an import in, its quality report out: from the facts of its chunks, its hashed keys and the imports before it.

Where a rule or the error budget holds the import, its hold is asked for instead of its end."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, select

from millrace.account.counting import Due
from millrace.account.references import orphans, repeated_keys
from millrace.exchange.mailboxes import Exchange
from millrace.model.chunk import ChunkVerdict
from millrace.model.imports import AMEND, COMPLETED, HELD, LOAD, PROCESSING, Import
from millrace.model.ops.imports import HoldImport, StopImport
from millrace.model.quality import Measured, over_its_budget, report, total
from millrace.model.table import Definition
from millrace.store import tables as t
from millrace.store.engine import upsert

MOST_PAST = 100


def keep_facts(connection: Connection, verdicts: Iterable[ChunkVerdict]) -> None:
    rows = [
        {"import_id": verdict.import_id, "number": verdict.number, "facts": verdict.quality}
        for verdict in verdicts
        if verdict.quality is not None
    ]
    if rows:
        upsert(connection, t.chunk_quality, rows)


def with_quality(
    connection: Connection, imp: Import, asked: Due, definition: Definition, exchange: Exchange
) -> Due | None:
    """The op to ask for, with the report. None while someone must decide about a held import."""
    if isinstance(asked, StopImport):
        return asked
    if imp.state == HELD:
        # Also if the budget that holds it is no longer in force.
        return None
    over_budget = asked.budget.holds and asked.budget.is_blown(imp.counts.read, imp.counts.rejected, at_the_end=True)
    if not definition.rules and not over_budget:
        return asked
    found = imp.options.get("quality") or quality_of(connection, imp, definition, exchange)
    if over_budget:
        found = over_its_budget(found, imp.counts.read, imp.counts.rejected)
    if not found["held"] or imp.state != PROCESSING or imp.options.get("released"):
        return replace(asked, quality=found)
    said = {name: getattr(asked, name) for name in ("counts", "durable", "failure", "budget", "refused")}
    return HoldImport(imp.tenant, imp.id, **said, quality=found)


def quality_of(connection: Connection, imp: Import, definition: Definition, exchange: Exchange) -> dict[str, Any]:
    wanted = select(t.chunk_quality.c.facts).where(t.chunk_quality.c.import_id == imp.id)
    totals = total(connection.execute(wanted).scalars())
    octets = int((imp.announced or {}).get("bytes", 0))
    if imp.kind not in (LOAD, AMEND):
        return report(definition.rules, totals, Measured(imp.counts.read, octets, {}))
    past = _past(connection, imp)
    unique = [rule.name for rule in definition.rules if rule.kind == "unique"]
    repeated = {name: repeated_keys(exchange.rule_keys.hashes(imp.id, name)) for name in unique}
    lost = {
        rule.name: orphans(connection, exchange.places, exchange.rule_keys, imp, rule)
        for rule in definition.rules
        if rule.kind == "reference"
    }
    rows, sizes = [counts["read"] for counts, _ in past], [int((end or {}).get("bytes", 0)) for _, end in past]
    return report(definition.rules, totals, Measured(imp.counts.read, octets, repeated, rows, sizes, lost))


def _past(connection: Connection, imp: Import) -> list[tuple[dict[str, int], dict[str, int] | None]]:
    """Counts and sizes of earlier completed imports, the newest first."""
    same = (t.imports.c.tenant == imp.tenant, t.imports.c.table_name == imp.table, t.imports.c.kind == LOAD)
    wanted = select(t.imports.c.counts, t.imports.c.announced).where(*same, t.imports.c.state == COMPLETED)
    rows = connection.execute(wanted.order_by(t.imports.c.ended_us.desc()).limit(MOST_PAST))
    return [(row.counts, row.announced) for row in rows]
