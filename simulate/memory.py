"""The control store as dictionaries. A commit makes a new `Memory` and leaves the old one as it was: a backup is a reference.

What an op sees and changes is here what `millrace/control/entities.py` is for SQL."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from millrace.account.counting import by_import, count
from millrace.control.state import Announce, Close, Queue, Send, Span, State, StoreDefinition, Table, Tenant
from millrace.model.chunk import ChunkVerdict
from millrace.model.facts import Fact
from millrace.model.imports import Import
from millrace.model.ops import Applied, Op
from millrace.model.ops.base import ImportOp, Need
from millrace.model.ops.results import Waiting
from millrace.model.table import Definition
from simulate.content import Chunk

Name = tuple[str, str]


class Event(NamedTuple):
    id: str
    tenant: str
    type: str
    subject: str
    data: dict[str, Any]


class SecondReader(Exception):
    """Another process has moved the position meanwhile."""


@dataclass
class Memory:
    """By name as (tenant, name); facts by import and chunk number; `sent` counts the events that are in their topic."""

    tenants: dict[str, Tenant] = field(default_factory=dict)
    tables: dict[Name, Table] = field(default_factory=dict)
    revisions: dict[Name, tuple[Definition, ...]] = field(default_factory=dict)
    queues: dict[Name, Queue] = field(default_factory=dict)
    imports: dict[str, Import] = field(default_factory=dict)
    keys: dict[Name, str] = field(default_factory=dict)
    spans: dict[Name, Span] = field(default_factory=dict)
    spans_seen: dict[Name, int] = field(default_factory=dict)
    senders: dict[tuple[str, str, str], int] = field(default_factory=dict)
    claims: dict[str, bytes] = field(default_factory=dict)
    chunks: dict[str, Mapping[int, ChunkVerdict]] = field(default_factory=dict)
    durable: dict[str, Mapping[str, frozenset[int]]] = field(default_factory=dict)
    requests: dict[str, Applied] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    sent: int = 0
    closings: dict[str, None] = field(default_factory=dict)
    outbox: dict[tuple[str, int], Chunk] = field(default_factory=dict)
    positions: dict[tuple[str, int], int] = field(default_factory=dict)

    def fork(self) -> "Memory":
        fork = Memory.__new__(Memory)
        fork.__dict__ = {name: value if type(value) is int else value.copy() for name, value in vars(self).items()}
        return fork

    def position(self, log: str) -> dict[int, int]:
        return {partition: offset for (of_log, partition), offset in self.positions.items() if of_log == log}

    def answer(self, op_id: str) -> Applied | None:
        """What became of an op; one that asked again for what waits in line hears what the first one hears."""
        known = self.requests.get(op_id)
        first = known.result.first if known is not None and isinstance(known.result, Waiting) else None
        return known if first is None else self.requests.get(first)


class MemoryTransaction:
    """Changes a fork; who commits it decides whether anyone ever sees it."""

    def __init__(self, store: Memory, contents: Mapping[bytes, tuple[Any, ...]]) -> None:
        self.store = store
        self._contents = contents

    def load(self, op: Op[Any]) -> State:
        store, tenant = self.store, op.tenant
        subject = op.subject
        if isinstance(op, ImportOp):
            imp = store.imports.get(subject)
            subject = imp.table if imp is not None else ""
        name = (tenant, subject)
        table = store.tables.get(name)
        queue = store.queues.get(name, ())
        defines = any(Need.HISTORY in one.NEEDS for one in (op, *queue))
        generation = table.definition.generation if table is not None and defines else 0
        return State(
            tenant=store.tenants.get(tenant),
            table=table,
            imports=self._imports(op),
            spans={span: value for (of, span), value in store.spans.items() if of == tenant},
            queue=queue,
            by_key={key: store.imports[found] for (of, key), found in store.keys.items() if of == tenant},
            history=tuple(one for one in store.revisions.get(name, ()) if one.generation == generation),
            senders={sender: seq for (of, its, sender), seq in store.senders.items() if (of, its) == name},
            claims=store.claims,
        )

    def _imports(self, op: Op[Any]) -> Mapping[str, Import]:
        """Whoever waives a sink sees the imports of the table alone."""
        if Need.OPEN_IMPORTS not in op.NEEDS:
            return self.store.imports
        of_table = (op.tenant, op.subject)
        return {name: imp for name, imp in self.store.imports.items() if (imp.tenant, imp.table) == of_table}

    def save(self, before: State, after: State, at_us: int) -> None:
        store = self.store
        if after.tenant is not None:
            store.tenants[after.tenant.name] = after.tenant
        for imp in after.imports.values():
            if imp is not before.imports.get(imp.id):
                self._save_import(imp)
        for span in after.spans.values():
            if span is not before.spans.get(span.name):
                store.spans[span.tenant, span.name] = span
                store.spans_seen[span.tenant, span.name] = at_us
        store.claims = dict(after.claims)
        if after.table is not None:
            self._save_table(before, after, after.table)

    def _save_import(self, imp: Import) -> None:
        store = self.store
        store.imports[imp.id] = imp
        if imp.idempotency_key is not None:
            store.keys[imp.tenant, imp.idempotency_key] = imp.id
        if imp.is_over:
            store.chunks.pop(imp.id, None)
            store.durable.pop(imp.id, None)

    def _save_table(self, before: State, after: State, table: Table) -> None:
        store, name = self.store, (table.tenant, table.name)
        store.tables[name] = table
        store.queues[name] = after.queue
        store.senders |= {(*name, sender): seq for sender, seq in after.senders.items()}
        new = tuple(one for one in after.history if one not in before.history)
        store.revisions[name] = store.revisions.get(name, ()) + new

    def keep(self, number: int, op: Op[Any], effect: Announce | Close | StoreDefinition | Send, at_us: int) -> None:
        """Effects that leave the store wait there, under ids that follow from the op."""
        match effect:
            case Announce(kind, subject, data):
                self.store.events.append(Event(f"{op.id}.{op.kind}.{number}", op.tenant, kind, subject, data))
            case Close(import_id):
                self.store.closings[import_id] = None
            case Send(sent, payload):
                rows = self._contents.get(payload, ())
                self.store.outbox[sent.import_id, sent.number] = Chunk(
                    sent.import_id, sent.number, sent.version, sent.definition, rows, tuple(range(1, len(rows) + 1)),
                    sent.checksum, sent.kind, sent.publish,
                )  # fmt: skip

    def answered(self, asked: Op[Any], answer: Applied) -> None:
        self.store.requests[asked.id] = answer

    def fold(self, facts: Iterable[Fact]) -> dict[str, Import]:
        verdicts, places = by_import(facts)
        folded = {}
        for import_id in verdicts.keys() | places.keys():
            imp = self.store.imports.get(import_id)
            if imp is None or imp.is_over:
                continue
            counts = self._count(imp, verdicts[import_id])
            durable = dict(self.store.durable.get(import_id, {}))
            for sink, numbers in places[import_id].items():
                durable[sink] = durable.get(sink, frozenset()) | numbers
            self.store.durable[import_id] = durable
            total = {sink: len(numbers) for sink, numbers in durable.items()}
            folded[import_id] = self.store.imports[import_id] = replace(imp, counts=counts, durable=total)
        return folded

    def _count(self, imp: Import, verdicts: list[ChunkVerdict]) -> Any:
        known = self.store.chunks.get(imp.id, {})
        counted = count(imp.counts, known, verdicts)
        changed = {verdict.number: verdict for verdict in (*counted.new, *counted.changed)}
        self.store.chunks[imp.id] = {**known, **changed}
        return counted.counts

    def advance(self, log: str, before: Mapping[int, int], after: Mapping[int, int]) -> None:
        for partition, offset in after.items():
            if self.store.positions.get((log, partition)) != before.get(partition):
                raise SecondReader(f"{log} {partition}")
            self.store.positions[log, partition] = offset

    def mark(self, import_id: str, markers: dict[str, int]) -> None:
        imp = self.store.imports.get(import_id)
        if imp is not None:
            self.store.imports[import_id] = replace(imp, markers=markers)
        self.store.closings.pop(import_id, None)

    def forget(self, chunks: Iterable[tuple[str, int]], events: int) -> None:
        for chunk in chunks:
            self.store.outbox.pop(chunk, None)
        self.store.sent = max(self.store.sent, events)
