"""The ledger in the control store: facts about chunks in, exact counts per import and what is due for it out."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, select, update

from millrace.account import counting
from millrace.account.counting import Counted, Due, Places, Verdicts, by_import, count
from millrace.account.quality import keep_facts
from millrace.exchange.ends import EndBox, ImportEnded
from millrace.model.budget import Budget
from millrace.model.chunk import ChunkVerdict
from millrace.model.facts import Fact, RowsRefused
from millrace.model.imports import ALTER, TRUNCATE, Counts, Import
from millrace.model.ops.imports import SettleImport
from millrace.model.table import Definition
from millrace.observe import observe
from millrace.sink.registry import has_ability
from millrace.store import tables as t
from millrace.store.engine import insert_new
from millrace.store.records import MOST_AT_ONCE, batched, find_imports

_SAVE = (
    update(t.imports)
    .where(t.imports.c.id == bindparam("of_import"))
    .values(counts=bindparam("counts"), durable=bindparam("durable"), touched_us=bindparam("touched_us"))
)
_JUDGED = ("accepted", "rejected", "ignored")
_PLACE = ("import_id", "sink", "number")
_KNOWN_CHUNKS = select(t.chunks).where(
    t.chunks.c.import_id.in_(bindparam("import_ids", expanding=True)),
    t.chunks.c.number.in_(bindparam("numbers", expanding=True)),
)
_KNOWN_DURABLE = select(*(t.durable_chunks.c[name] for name in _PLACE)).where(
    t.durable_chunks.c.import_id.in_(bindparam("import_ids", expanding=True)),
    t.durable_chunks.c.number.in_(bindparam("numbers", expanding=True)),
)
_REFUSED_ROWS = (
    select(t.refused_rows.c.sink, func.sum(t.refused_rows.c.rows).label("rows"))
    .where(t.refused_rows.c.import_id == bindparam("of_import"))
    .group_by(t.refused_rows.c.sink)
)


def fold(connection: Connection, facts: Iterable[Fact], now_us: int) -> dict[str, Import]:
    """Counts what is new in the facts. Returns the imports that they are about and that are not over, with the new counts."""
    facts = list(facts)
    verdicts, places = by_import(facts)
    import_ids = list(verdicts.keys() | places.keys())
    imports = {imp.id: imp for imp in find_imports(connection, import_ids) if not imp.is_over}
    counts = _count(connection, imports, verdicts)
    durable = _newly_durable(connection, imports, places)
    folded = {}
    for import_id, imp in imports.items():
        total = {**imp.durable, **{sink: imp.durable.get(sink, 0) + new for sink, new in durable[import_id].items()}}
        folded[import_id] = replace(imp, counts=counts.get(import_id, imp.counts), durable=total)
    if folded:
        saved = [
            {"of_import": imp.id, "counts": asdict(imp.counts), "durable": imp.durable, "touched_us": now_us}
            for imp in folded.values()
        ]
        connection.execute(_SAVE, saved)
    _note_refused(connection, [fact for fact in facts if isinstance(fact, RowsRefused)])
    return folded


def _note_refused(connection: Connection, facts: list[RowsRefused]) -> None:
    told_of = {import_id for fact in facts for import_id, _, _ in fact.chunks}
    under_way = {imp.id for imp in find_imports(connection, told_of) if not imp.is_over}
    for fact in facts:
        chunks = [chunk for chunk in fact.chunks if chunk[0] in under_way]
        rows = [{"import_id": chunk[0], "sink": fact.sink, "number": chunk[1], "rows": chunk[2]} for chunk in chunks]
        insert_new(connection, t.refused_rows, rows)


def refused_rows(connection: Connection, import_id: str) -> dict[str, int]:
    """By sink, of an import that is under way."""
    return {row.sink: int(row.rows) for row in connection.execute(_REFUSED_ROWS, {"of_import": import_id})}


def _count(connection: Connection, imports: Mapping[str, Import], verdicts: Verdicts) -> dict[str, Counts]:
    wanted = {import_id: {one.number for one in found} for import_id, found in verdicts.items() if import_id in imports}
    known: dict[str, dict[int, ChunkVerdict]] = {import_id: {} for import_id in wanted}
    for row in _rows_about(connection, _KNOWN_CHUNKS, wanted):
        # Counting does not need the version, so the ledger does not keep it.
        known[row.import_id][row.number] = ChunkVerdict(version=0, **row._mapping)
    counted = {name: count(imports[name].counts, known[name], verdicts[name]) for name in wanted}
    _save_chunks(connection, counted.values())
    _observe_judged((imports[name].counts, one.counts) for name, one in counted.items())
    return {name: one.counts for name, one in counted.items()}


def _rows_about(connection: Connection, statement: Select[Any], wanted: Mapping[str, Collection[int]]) -> Iterator[Any]:
    """Rows of at least these chunks: a statement asks for all numbers of all its imports."""
    for names in batched(wanted, MOST_AT_ONCE):
        numbers = list({number for name in names for number in wanted[name]})
        yield from connection.execute(statement, {"import_ids": names, "numbers": numbers})


def _observe_judged(counts: Iterable[tuple[Counts, Counts]]) -> None:
    gained = Counter[str]()
    for before, after in counts:
        gained.update({name: getattr(after, name) - getattr(before, name) for name in _JUDGED})
    for name in _JUDGED:
        observe("rows_judged", max(gained[name], 0), verdict=name)


def _save_chunks(connection: Connection, counted: Collection[Counted]) -> None:
    insert_new(connection, t.chunks, [_row(verdict) for one in counted for verdict in one.new])
    for verdict in (verdict for one in counted for verdict in one.changed):
        where = (t.chunks.c.import_id == verdict.import_id, t.chunks.c.number == verdict.number)
        connection.execute(update(t.chunks).where(*where).values(_row(verdict)))
    keep_facts(connection, (verdict for one in counted for verdict in (*one.new, *one.changed)))


def _row(verdict: ChunkVerdict) -> dict[str, object]:
    return {column.name: getattr(verdict, column.name) for column in t.chunks.columns}


def _newly_durable(connection: Connection, imports: Mapping[str, Import], places: Places) -> dict[str, Counter[str]]:
    """How many chunks of each import became durable in each sink."""
    reported = {import_id: places[import_id] for import_id in imports if import_id in places}
    wanted = {import_id: set().union(*by_sink.values()) for import_id, by_sink in reported.items()}
    known = {tuple(row) for row in _rows_about(connection, _KNOWN_DURABLE, wanted)}
    new = [
        place
        for import_id, by_sink in reported.items()
        for sink, numbers in by_sink.items()
        for number in numbers
        if (place := (import_id, sink, number)) not in known
    ]
    insert_new(connection, t.durable_chunks, [dict(zip(_PLACE, place, strict=True)) for place in new])
    gained: dict[str, Counter[str]] = defaultdict(Counter)
    for import_id, sink, _ in new:
        gained[import_id][sink] += 1
    for sink, times in Counter(sink for _, sink, _ in new).items():
        observe("chunks_durable", times, sink=sink)
    return gained


def due(connection: Connection, imp: Import, passed: dict[str, int], budget: Callable[[Import], Budget]) -> Due | None:
    """What to ask the controller for now, if anything."""
    rejecting, failure = partial(rejecting_chunks, connection, imp.id), partial(first_failure, connection, imp.id)
    asked = counting.due(imp, passed, partial(budget, imp), rejecting, failure)
    return replace(asked, refused=refused_rows(connection, imp.id)) if isinstance(asked, SettleImport) else asked


def judged_numbers(connection: Connection, import_id: str) -> set[int]:
    return set(connection.execute(select(t.chunks.c.number).where(t.chunks.c.import_id == import_id)).scalars())


def rejecting_chunks(connection: Connection, import_id: str) -> int:
    wanted = select(func.count()).where(t.chunks.c.import_id == import_id, t.chunks.c.rejected > 0)
    return connection.execute(wanted).scalar_one()


def first_failure(connection: Connection, import_id: str) -> str | None:
    wanted = select(t.chunks.c.failure).where(t.chunks.c.import_id == import_id, t.chunks.c.failure.is_not(None))
    return connection.execute(wanted.order_by(t.chunks.c.number).limit(1)).scalar()


def mark_end(connection: Connection, imp: Import, definition: Definition, box: EndBox) -> None:
    """Tells sinks which chunks of the import hold rows. Readers do not wait for a change of the table itself.

    Before the end is asked for, so that no import ends without it; written again, it says the same."""
    takers = any(has_ability(target.kind, "takes_ends") for target in definition.table.targets)
    if imp.kind in (TRUNCATE, ALTER) or not takers:
        return
    holding = select(t.chunks.c.number).where(t.chunks.c.import_id == imp.id, t.chunks.c.accepted > 0)
    numbers = tuple(connection.execute(holding.order_by(t.chunks.c.number)).scalars())
    box.put(ImportEnded(imp.id, imp.definition, imp.first_version + max(imp.versions - 1, 0), numbers))
