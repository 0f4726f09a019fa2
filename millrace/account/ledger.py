"""The ledger: facts about chunks in, exact counts per import out. Folding by identity makes redelivery harmless (I4)."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, select, update

from millrace.model.chunk import Verdict
from millrace.model.facts import Durable, Fact, Judged
from millrace.model.imports import ERROR_STORE, STOPPING, Counts, Import
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
    verdicts: dict[str, dict[int, Verdict]] = defaultdict(dict)
    durable: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for fact in facts:
        match fact:
            case Judged(judged):
                for verdict in judged:
                    known = verdicts[verdict.import_id].get(verdict.number)
                    if known is None or _was_ignored(known):
                        verdicts[verdict.import_id][verdict.number] = verdict
            case Durable(sink, chunks):
                for import_id, number in chunks:
                    durable[import_id][sink].add(number)
    folded = {}
    for import_id in verdicts.keys() | durable.keys():
        imp = find_import(connection, import_id)
        if imp is None or imp.is_over:
            continue
        counts = _count(connection, imp, verdicts[import_id]) if import_id in verdicts else imp.counts
        made = {sink: _newly_durable(connection, import_id, sink, them) for sink, them in durable[import_id].items()}
        total = {**imp.durable, **{sink: imp.durable.get(sink, 0) + new for sink, new in made.items()}}
        told = {"counts": asdict(counts), "durable": total, "touched_us": now_us, "of_import": import_id}
        connection.execute(_SAVE, told)
        folded[import_id] = replace(imp, counts=counts, durable=total)
    return folded


def _was_ignored(verdict: Verdict) -> bool:
    return verdict.ignored > 0


def _count(connection: Connection, imp: Import, verdicts: dict[int, Verdict]) -> Counts:
    import_id = imp.id
    known = (t.chunks.c.import_id == import_id, t.chunks.c.number.in_(list(verdicts)))
    told = {row.number: row for row in connection.execute(select(t.chunks).where(*known))}
    new = [verdict for number, verdict in verdicts.items() if number not in told]
    # A chunk first passed over and then judged after all: the verdict counts.
    judged_after_all = [v for n, v in verdicts.items() if n in told and told[n].ignored > 0 and not _was_ignored(v)]
    insert_new(connection, t.chunks, [_row(verdict) for verdict in new])
    for verdict in judged_after_all:
        where = (t.chunks.c.import_id == import_id, t.chunks.c.number == verdict.number)
        connection.execute(update(t.chunks).where(*where).values(_row(verdict)))
    counts = _added(imp.counts, new)
    for verdict in judged_after_all:
        counts = replace(
            _added(counts, [verdict]), chunks=counts.chunks, read=counts.read, ignored=counts.ignored - verdict.rows
        )
    counts = replace(counts, failed_chunks=counts.failed_chunks + _mark_contradictions(connection, verdicts, told))
    for verdict_name in ("accepted", "rejected", "ignored"):
        gained = getattr(counts, verdict_name) - getattr(imp.counts, verdict_name)
        observe("rows_judged", max(gained, 0), verdict=verdict_name)
    return counts


def _mark_contradictions(connection: Connection, verdicts: dict[int, Verdict], told: dict[int, Row[Any]]) -> int:
    """The same chunk with other bytes: neither can be trusted, so the import fails."""
    found = 0
    for number, row in told.items():
        verdict = verdicts[number]
        if row.checksum != verdict.checksum and row.failure is None:
            failure = f"Chunk {number} arrived twice with different bytes."
            where = (t.chunks.c.import_id == verdict.import_id, t.chunks.c.number == number)
            connection.execute(update(t.chunks).where(*where).values(failure=failure))
            found += 1
    return found


def _row(verdict: Verdict) -> dict[str, object]:
    row = asdict(verdict)
    del row["version"]
    return row


def _added(counts: Counts, verdicts: Iterable[Verdict]) -> Counts:
    for verdict in verdicts:
        counts = Counts(
            chunks=counts.chunks + 1,
            read=counts.read + verdict.rows,
            accepted=counts.accepted + verdict.accepted,
            rejected=counts.rejected + verdict.rejected,
            ignored=counts.ignored + verdict.ignored,
            failed_chunks=counts.failed_chunks + (verdict.failure is not None),
        )
    return counts


def _newly_durable(connection: Connection, import_id: str, sink: str, numbers: set[int]) -> int:
    facts = t.durable_chunks
    known = (facts.c.import_id == import_id, facts.c.sink == sink, facts.c.number.in_(list(numbers)))
    new = numbers - set(connection.execute(select(facts.c.number).where(*known)).scalars())
    insert_new(connection, facts, [{"import_id": import_id, "sink": sink, "number": number} for number in new])
    observe("chunks_durable", len(new), sink=sink)
    return len(new)


def has_settled(connection: Connection, imp: Import, passed: dict[str, int]) -> bool:
    """True when every chunk of the import has its verdict and every verdict is durable wherever it must be.

    `passed` says how far the validating queries have durably come in each raw-input partition."""
    if imp.is_over:
        return False
    if imp.state == STOPPING:
        if imp.markers is None or any(passed.get(partition, 0) <= offset for partition, offset in imp.markers.items()):
            return False
    elif imp.announced is None or imp.counts.chunks < imp.announced["chunks"]:
        return False
    if any(imp.durable.get(sink, 0) < imp.counts.chunks for sink in imp.sinks):
        return False
    return imp.counts.rejected == 0 or imp.durable.get(ERROR_STORE, 0) >= _rejecting_chunks(connection, imp.id)


def _rejecting_chunks(connection: Connection, import_id: str) -> int:
    wanted = select(func.count()).where(t.chunks.c.import_id == import_id, t.chunks.c.rejected > 0)
    return connection.execute(wanted).scalar_one()


def first_failure(connection: Connection, import_id: str) -> str | None:
    wanted = select(t.chunks.c.failure).where(t.chunks.c.import_id == import_id, t.chunks.c.failure.is_not(None))
    return connection.execute(wanted.order_by(t.chunks.c.number).limit(1)).scalar()
