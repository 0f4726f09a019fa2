"""Any log, however senseless: versions rise in its order, what is over stays over, what is counted is there (I1)."""

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millrace.control.state import Announce
from millrace.model.budget import Budget
from millrace.model.imports import DISCARD, REPLAY
from millrace.model.ops import Op
from millrace.model.ops.imports import (
    BeginImport,
    CancelImport,
    EndImport,
    ExpireImport,
    FailImport,
    PublishImport,
    SettleImport,
    StopImport,
)
from millrace.model.ops.rows import Append, DiscardErrors, OpenSender, ReplayErrors
from millrace.model.ops.spans import AbortSpan, BeginSpan, EndSpan, ExpireSpan
from millrace.model.ops.tables import DefineTable, DropTable, PurgeTable, RestoreTable, TruncateTable, WaiveSink
from simulate.memory import Memory
from tests.support.control import COUNTS, NOON, TableLog, declared, rows
from tests.support.examples import examples

TABLES = ("first", "second")
SPANS = ("a", "a/b", "a/b/c", "d")
# A change of a definition is an import whose events are those of its table.
BEGINS = ("import.admitted", "table.created", "table.changed")
ENDS = ("import.completed", "import.failed", "import.cancelled", "table.change_completed", "table.change_failed")


def import_of(effect: Announce) -> str:
    return str(effect.data["import"] if effect.type.startswith("table.") else effect.subject)


tables, spans = st.sampled_from(TABLES), st.sampled_from(SPANS)
# How many imports ago; mostly it is one of the last.
imports = st.integers(0, 2) | st.integers(0, 8)
keys = st.sampled_from([None, "k1", "k2"])
numbers = st.sets(st.integers(1, 4), min_size=1).map(lambda some: rows(*some))
waits = st.booleans()
policies = st.fixed_dictionaries(
    {"concurrency": st.sampled_from(["exclusive", "concurrent"]), "publish": st.sampled_from(["rolling", "atomic"])}
)
budgets = st.sampled_from([Budget(), Budget(rows=0), Budget(percent=5.0)])
announced = st.integers(1, 2).map(lambda chunks: {"chunks": chunks, "rows": 3, "bytes": 9})
settling = st.fixed_dictionaries(
    {"counts": st.sampled_from([COUNTS, replace(COUNTS, accepted=0, rejected=10)]), "budget": budgets}
).map(lambda body: {**body, "durable": {"delta": 1}})
senders = st.tuples(st.integers(1, 3), st.integers(1, 3)).map(lambda ends: {"s": ends})
broken = st.just({"error": {"code": "invalid", "message": "bad", "remedy": ""}})


def about(op: type[Op[Any]], subjects: Any, /, **body: Any) -> Any:
    return st.tuples(st.just(op), subjects, st.fixed_dictionaries(body))


@st.composite
def definitions(draw: st.DrawFn) -> tuple[type[Op[Any]], str, dict[str, Any]]:
    name = draw(tables)
    declaration = declared(name, primary_key=draw(st.sampled_from([["id"], []])), **draw(policies))
    return DefineTable, name, {"declaration": declaration, "wait": draw(waits), "new_generation": draw(waits)}


asked = st.one_of(
    definitions(),
    about(BeginImport, tables, idempotency_key=keys, wait=waits, span=st.none() | spans),
    about(BeginImport, tables, import_kind=st.just("amend"), of=imports, rows=numbers),
    about(Append, tables, rows=st.just(1), plain_bytes=st.just(1), checksum=st.just(1), payload=st.just(""),
          senders=senders, span=st.none() | spans),
    about(OpenSender, tables, sender=st.just("s")),
    about(ReplayErrors, tables, of=imports, rows=numbers, rows_count=st.just(1), chunks=st.just(1),
          first_version=st.integers(NOON, NOON + 10_000), span=st.none() | spans),
    about(DiscardErrors, tables, of=imports, rows=numbers),
    about(TruncateTable, tables, wait=waits),
    about(DropTable, tables, wait=waits),
    about(RestoreTable, tables, wait=waits),
    about(PurgeTable, tables, dropped_us=st.integers(NOON, NOON + 3)),
    about(WaiveSink, tables, sink=st.sampled_from(["delta", "nowhere"])),
    st.tuples(st.just(EndImport), imports, announced),
    st.tuples(st.sampled_from([FailImport, StopImport]), imports, broken),
    about(CancelImport, imports),
    about(ExpireImport, imports, idle_seconds=st.just(5)),
    st.tuples(st.sampled_from([SettleImport, SettleImport, PublishImport]), imports, settling),
    about(BeginSpan, spans),
    st.tuples(st.sampled_from([EndSpan, EndSpan, AbortSpan, ExpireSpan]), spans, st.just({})),
)  # fmt: skip
logs = st.lists(st.tuples(asked, st.integers(-2, 4)), min_size=10, max_size=60)
Log = list[tuple[tuple[type[Op[Any]], Any, dict[str, Any]], int]]


class Reader:
    """Applies a log and looks at the state after each op."""

    def __init__(self) -> None:
        self.log = TableLog()
        self._last: dict[str, int] = {}
        self._ended: set[str] = set()

    def read(self, given_log: Log) -> None:
        for number, ((kind, subject, body), later_us) in enumerate(given_log):
            self.log.now_us += later_us
            before = self.log.store
            named = {**body, "of": self._ago(body["of"])} if "of" in body else body
            self.log.apply(kind, self._ago(subject), **named, op_id=f"imp_{number}")
            self._check_versions()
            self._check_turns(before)
            self._check_ends(before.imports)
            self._check_counters()

    def _ago(self, subject: Any) -> str:
        """The name itself, or that of the import which was made so many imports ago."""
        made = list(self.log.store.imports)
        return subject if isinstance(subject, str) else made[-1 - subject] if subject < len(made) else "imp_none"

    def _check_versions(self) -> None:
        for _, effect in self.log.last.effects:
            if isinstance(effect, Announce) and effect.type in BEGINS:
                imp = self.log.imported(import_of(effect))
                if imp.kind != REPLAY:
                    assert imp.first_version == max(self.log.now_us, self._last.get(imp.table, 0) + 1)
                    self._last[imp.table] = imp.first_version + imp.versions - 1

    def _check_turns(self, before: Memory) -> None:
        told = [effect for _, effect in self.log.last.effects if isinstance(effect, Announce)]
        if any(effect.type in ENDS for effect in told):
            return
        for imp in (self.log.imported(import_of(effect)) for effect in told if effect.type in BEGINS):
            table = before.tables.get((imp.tenant, imp.table))
            assert table is None or table.has_room, "an exclusive table has one thing under way"

    def _check_ends(self, before: dict[str, Any]) -> None:
        ends = [import_of(e) for _, e in self.log.last.effects if isinstance(e, Announce) and e.type in ENDS]
        assert not self._ended & set(ends), "an end is announced once"
        self._ended |= set(ends)
        assert self._ended == {imp.id for imp in self.log.store.imports.values() if imp.is_over}
        assert all(self.log.imported(name) == imp for name, imp in before.items() if imp.is_over)

    def _check_counters(self) -> None:
        store = self.log.store
        under_way = [imp for imp in store.imports.values() if not imp.is_over and imp.kind != DISCARD]
        per_table = Counter(imp.table for imp in under_way)
        waiting = [op for queue in store.queues.values() for op in queue]
        in_span = Counter(imp.span for imp in under_way) + Counter(op.span for op in waiting)
        for (_, name), table in store.tables.items():
            assert table.open_imports == per_table[name]
            assert not store.queues[self.log.tenant, name] or not table.has_room
        for (_, name), span in store.spans.items():
            children = [child for (_, other), child in store.spans.items() if child.parent == name and other]
            assert span.open_members == in_span[name] + sum(not child.is_over for child in children)
            assert span.state != "ending" or span.open_members > 0
            assert span.is_over or all(above.state != "ended" for above in self._above(span))

    def _above(self, span: Any) -> list[Any]:
        return [] if span.parent is None else [self.log.span(span.parent)]


def begun(name: str, concurrency: str) -> tuple[tuple[type[Op[Any]], Any, dict[str, Any]], int]:
    return (DefineTable, name, {"declaration": declared(name, concurrency=concurrency)}), 0


done = (SettleImport, 0, {"counts": replace(COUNTS, read=0, accepted=0, rejected=0), "durable": {}}), 0


@examples(300)
@given(logs)
def test_every_log_keeps_the_rules(given_log: Log) -> None:
    start = [begun("first", "exclusive"), done, begun("second", "concurrent"), done]
    first, second = Reader(), Reader()
    first.read([*start, *given_log])
    second.read([*start, *given_log])
    assert vars(first.log.store) == vars(second.log.store), "the same log gives the same state"
    assert first.log.effects == second.log.effects, "and the same events"
