"""The ledger in the control store: facts about chunks in, exact counts per import and what is due for it out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial

from sqlalchemy import Connection, bindparam, func, select, update

from millrace.account import counting
from millrace.account.counting import Counted, Due, by_import, count
from millrace.account.quality import keep_facts
from millrace.model.chunk import Verdict
from millrace.model.facts import Fact, Refused
from millrace.model.imports import Counts, Import
from millrace.model.ops import SETTLE_IMPORT
from millrace.model.table import Budget
from millrace.observe import observe
from millrace.store import tables as t
from millrace.store.engine import insert_new
from millrace.store.records import find_import

_SAVE = (
    update(t.imports)
    .where(t.imports.c.id == bindparam("of_import"))
    .values(counts=bindparam("counts"), durable=bindparam("durable"), touched_us=bindparam("touched_us"))
)


def fold(connection: Connection, facts: Iterable[Fact], now_us: int) -> dict[str, Import]:
    """Counts what is new in the facts; the imports they speak of, as they are then, unless they are over."""
    facts = list(facts)
    verdicts, places = by_import(facts)
    folded = {}
    for import_id in verdicts.keys() | places.keys():
        imp = find_import(connection, import_id)
        if imp is None or imp.is_over:
            continue
        counts = _count(connection, imp, verdicts[import_id]) if import_id in verdicts else imp.counts
        made = {sink: _newly_durable(connection, import_id, sink, them) for sink, them in places[import_id].items()}
        total = {**imp.durable, **{sink: imp.durable.get(sink, 0) + new for sink, new in made.items()}}
        told = {"counts": asdict(counts), "durable": total, "touched_us": now_us, "of_import": import_id}
        connection.execute(_SAVE, told)
        folded[import_id] = replace(imp, counts=counts, durable=total)
    _note_refused(connection, [fact for fact in facts if isinstance(fact, Refused)])
    return folded


def _note_refused(connection: Connection, facts: list[Refused]) -> None:
    for fact in facts:
        under_way = [one for one in fact.chunks if _is_under_way(connection, one[0])]
        rows = [{"import_id": chunk[0], "sink": fact.sink, "number": chunk[1], "rows": chunk[2]} for chunk in under_way]
        insert_new(connection, t.refused_rows, rows)


def _is_under_way(connection: Connection, import_id: str) -> bool:
    imp = find_import(connection, import_id)
    return imp is not None and not imp.is_over


def refused_rows(connection: Connection, import_id: str) -> dict[str, int]:
    """By sink, of an import that is under way."""
    found = t.refused_rows
    wanted = select(found.c.sink, func.sum(found.c.rows).label("rows")).where(found.c.import_id == import_id)
    return {row.sink: int(row.rows) for row in connection.execute(wanted.group_by(found.c.sink))}


def _count(connection: Connection, imp: Import, verdicts: Sequence[Verdict]) -> Counts:
    wanted = (t.chunks.c.import_id == imp.id, t.chunks.c.number.in_({verdict.number for verdict in verdicts}))
    rows = connection.execute(select(t.chunks).where(*wanted))
    # The version is of no matter here, so it is not kept.
    known = {row.number: Verdict(version=0, **row._mapping) for row in rows}
    counted = count(imp.counts, known, verdicts)
    _save_chunks(connection, counted)
    keep_facts(connection, (*counted.new, *counted.changed))
    for verdict_name in ("accepted", "rejected", "ignored"):
        gained = getattr(counted.counts, verdict_name) - getattr(imp.counts, verdict_name)
        observe("rows_judged", max(gained, 0), verdict=verdict_name)
    return counted.counts


def _save_chunks(connection: Connection, counted: Counted) -> None:
    insert_new(connection, t.chunks, [_row(verdict) for verdict in counted.new])
    for verdict in counted.changed:
        where = (t.chunks.c.import_id == verdict.import_id, t.chunks.c.number == verdict.number)
        connection.execute(update(t.chunks).where(*where).values(_row(verdict)))


def _row(verdict: Verdict) -> dict[str, object]:
    row = asdict(verdict)
    del row["version"], row["quality"]
    return row


def _newly_durable(connection: Connection, import_id: str, sink: str, numbers: set[int]) -> int:
    facts = t.durable_chunks
    known = (facts.c.import_id == import_id, facts.c.sink == sink, facts.c.number.in_(list(numbers)))
    new = numbers - set(connection.execute(select(facts.c.number).where(*known)).scalars())
    insert_new(connection, facts, [{"import_id": import_id, "sink": sink, "number": number} for number in new])
    observe("chunks_durable", len(new), sink=sink)
    return len(new)


def has_settled(connection: Connection, imp: Import, passed: dict[str, int]) -> bool:
    return counting.has_settled(imp, passed, partial(_rejecting_chunks, connection, imp.id))


def due(connection: Connection, imp: Import, passed: dict[str, int], budget: Callable[[Import], Budget]) -> Due | None:
    """What to ask the controller for now, if anything."""
    rejecting, failure = partial(_rejecting_chunks, connection, imp.id), partial(first_failure, connection, imp.id)
    asked = counting.due(imp, passed, partial(budget, imp), rejecting, failure)
    if asked is None or asked[0] != SETTLE_IMPORT:
        return asked
    refused = refused_rows(connection, imp.id)
    return (asked[0], {**asked[1], "refused": refused}) if refused else asked


def _rejecting_chunks(connection: Connection, import_id: str) -> int:
    wanted = select(func.count()).where(t.chunks.c.import_id == import_id, t.chunks.c.rejected > 0)
    return connection.execute(wanted).scalar_one()


def first_failure(connection: Connection, import_id: str) -> str | None:
    wanted = select(t.chunks.c.failure).where(t.chunks.c.import_id == import_id, t.chunks.c.failure.is_not(None))
    return connection.execute(wanted.order_by(t.chunks.c.number).limit(1)).scalar()
