"""Reads the state that one op needs from the control store, and writes back what the op changed."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, delete, insert, select
from sqlalchemy import Table as SqlTable

from millrace.control.rules.admitting import open_imports_allowed
from millrace.control.state import Queue, Span, State, Table
from millrace.control.working_set import WorkingSet
from millrace.model.imports import Counts, Import
from millrace.model.names import span_lineage
from millrace.model.ops import Op
from millrace.model.ops.base import ImportOp, Need, SpanOp, TableOp
from millrace.model.ops.reading import decode_op
from millrace.model.ops.rows import OpenSender
from millrace.model.table import Definition
from millrace.store import tables as t
from millrace.store.engine import upsert
from millrace.store.records import MOST_AT_ONCE, batched


def load(working: WorkingSet, op: Op[Any]) -> State:
    """The op's subject and what its rule needs; also what the waiting ops need whose turn may come with this one."""
    connection = working.connection
    if isinstance(op, ImportOp):
        imp = working.import_(op.import_id)
        if imp is None or Need.TABLE not in op.NEEDS:
            return State(imports={} if imp is None else {imp.id: imp})
        return _load_table(working, op, imp.table, imp)
    if isinstance(op, TableOp):
        return _load_table(working, op, op.table, None)
    spans = [name for name in (op.name if isinstance(op, SpanOp) else None, op.joins) if name]
    return State(
        tenant=working.tenant(op.tenant),
        spans=_find_spans(connection, op.tenant, spans),
        twin=_twin(connection, t.tenants, op.tenant) if Need.TWIN in op.NEEDS else None,
        open_imports=working.count_unsettled(op.tenant) if Need.UNSETTLED in op.NEEDS else None,
    )


def _load_table(working: WorkingSet, op: TableOp[Any] | ImportOp[Any], name: str, imp: Import | None) -> State:
    connection, table = working.connection, working.table(op.tenant, name)
    queue = _find_queue(connection, table) if table is not None else ()
    concerned = (op, *queue) if isinstance(op, TableOp) else queue
    needs = frozenset[Need]().union(*(one.NEEDS for one in concerned))
    origins = [one.origin for one in concerned if one.origin]
    found = [working.import_(origin) for origin in origins]
    imports = {known.id: known for known in (imp, *found) if known is not None}
    if Need.OPEN_IMPORTS in needs:
        imports |= {one.id: one for one in working.open_imports(op.tenant, name)}
    joined = [span for span in (imp and imp.span, *(one.joins for one in concerned)) if span]
    if imp is not None and imp.of is not None:
        origins.append(imp.of)
    return State(
        tenant=working.tenant(op.tenant) if concerned else None,
        table=table,
        imports=imports,
        spans=_find_spans(connection, op.tenant, joined),
        queue=queue,
        by_key=_find_keys(working, concerned),
        history=_find_history(connection, table) if Need.HISTORY in needs and table is not None else (),
        senders=_find_senders(connection, op.tenant, name, concerned),
        row_digests=_find_digests(connection, op.tenant, name, concerned),
        claims=_find_claims(connection, origins),
        twin=_table_twin(connection, op.tenant, name) if Need.TWIN in op.NEEDS and table is None else None,
        open_imports=_open_imports(working, op.tenant, imp) if Need.QUOTA in needs else None,
    )


def _open_imports(working: WorkingSet, tenant_name: str, ending: Import | None) -> int | None:
    """None if the tenant has no limit. The import that ends with the op is not counted."""
    tenant = working.tenant(tenant_name)
    if tenant is None or open_imports_allowed(tenant.agreement) is None:
        return None
    return working.count_open_imports(tenant_name, None if ending is None else ending.id)


def save(working: WorkingSet, before: State, after: State, at_us: int) -> None:
    connection = working.connection
    if before.tenant is not None and after.tenant is None:
        working.erase(before.tenant.name)
        return
    if after.tenant is not None and after.tenant is not before.tenant:
        working.put_tenant(after.tenant)
    if after.table is not None and after.table is not before.table:
        working.put_table(after.table)
        _save_revisions(connection, before, after, at_us)
    for imp in _changed(before.imports, after.imports):
        working.put_import(imp, at_us)
        known = before.imports.get(imp.id)
        if imp.is_over and (known is None or not known.is_over):
            working.meter(imp, at_us)
    for span in _changed(before.spans, after.spans):
        upsert(connection, t.spans, _span_row(span, at_us))
    if after.queue != before.queue and after.table is not None:
        _save_queue(connection, after.table, before.queue, after.queue)
    if after.table is not None:
        _save_senders(connection, after.table, before, after, at_us)
    for import_id, rows in after.claims.items():
        if before.claims.get(import_id) != rows:
            upsert(connection, t.claims, {"import_id": import_id, "rows": rows})


def _save_senders(connection: Connection, table: Table, before: State, after: State, at_us: int) -> None:
    of_table = {"tenant": table.tenant, "table_name": table.name}
    for sender, seq in after.senders.items():
        if before.senders.get(sender) != seq:
            upsert(connection, t.streams, {**of_table, "stream": sender, "seq": seq, "touched_us": at_us})
    for sender, digest in after.row_digests.items():
        if before.row_digests.get(sender) != digest:
            upsert(connection, t.row_digests, {**of_table, "stream": sender, "digest": digest, "touched_us": at_us})


def _changed(before: Any, after: Any) -> list[Any]:
    return [value for name, value in after.items() if before.get(name) is not value]


_FORGET_FACTS = tuple(
    delete(facts).where(facts.c.import_id.in_(bindparam("import_ids", expanding=True)))
    for facts in (t.chunks, t.durable_chunks, t.refused_rows, t.uploads, t.chunk_quality)
)


def forget_facts(connection: Connection, import_ids: list[str]) -> None:
    """Deletes what is needed only while these imports are under way."""
    for some in batched(import_ids, MOST_AT_ONCE):
        for forget in _FORGET_FACTS:
            connection.execute(forget, {"import_ids": some})


_SPANS = select(t.spans).where(
    t.spans.c.tenant == bindparam("of_tenant"), t.spans.c.name.in_(bindparam("names", expanding=True))
)


def _twin(connection: Connection, named: SqlTable, name: str, *where: ColumnElement[bool]) -> str | None:
    wanted = select(named.c.name).where(named.c.folded_name == name.lower(), *where)
    found: str | None = connection.execute(wanted).scalar()
    return None if found == name else found


def _table_twin(connection: Connection, tenant: str, name: str) -> str | None:
    return _twin(connection, t.tables, name, t.tables.c.tenant == tenant)


_QUEUE = (
    select(t.waiting.c.op)
    .where(t.waiting.c.tenant == bindparam("of_tenant"), t.waiting.c.table_name == bindparam("of_table"))
    .order_by(t.waiting.c.number)
)


def _find_queue(connection: Connection, table: Table) -> Queue:
    if table.definition.table.concurrency == "concurrent":
        return ()
    rows = connection.execute(_QUEUE, {"of_tenant": table.tenant, "of_table": table.name})
    return tuple(decode_op(row.op) for row in rows)  # type: ignore[misc]  # only these wait


def _find_history(connection: Connection, table: Table) -> tuple[Definition, ...]:
    of_table = (t.revisions.c.tenant == table.tenant, t.revisions.c.table_name == table.name)
    wanted = select(t.revisions.c.definition).where(*of_table, t.revisions.c.generation == table.definition.generation)
    rows = connection.execute(wanted.order_by(t.revisions.c.revision))
    return tuple(Definition.from_json(row.definition.encode()) for row in rows)


def _find_spans(connection: Connection, tenant: str, names: Iterable[str]) -> dict[str, Span]:
    levels = sorted({level for name in names for level in span_lineage(name)})
    if not levels:
        return {}
    rows = connection.execute(_SPANS, {"of_tenant": tenant, "names": levels})
    return {row.name: _span(row) for row in rows}


def _span(row: Any) -> Span:
    return Span(
        row.tenant, row.name, row.state, row.begun_us, row.lease_seconds,
        row.open_members, row.imports, Counts(**row.counts), row.error, row.ended_us,
    )  # fmt: skip


def _span_row(span: Span, at_us: int) -> dict[str, Any]:
    return {**asdict(span), "parent": span.parent, "seen_us": at_us}


def _find_keys(working: WorkingSet, concerned: Iterable[TableOp[Any]]) -> dict[str, Import]:
    wanted = [(op.tenant, op.request_key) for op in concerned if op.request_key]
    found = {key: working.import_by_key(tenant, key) for tenant, key in wanted}
    return {key: imp for key, imp in found.items() if imp is not None}


def _find_senders(connection: Connection, tenant: str, table: str, concerned: Iterable[TableOp[Any]]) -> dict[str, int]:
    named = {sender for op in concerned for sender in op.sender_names}
    found: dict[str, int] = {}
    for some in batched(named, MOST_AT_ONCE):
        where = (t.streams.c.tenant == tenant, t.streams.c.table_name == table, t.streams.c.stream.in_(some))
        found |= {row.stream: row.seq for row in connection.execute(select(t.streams).where(*where))}
    return found


def _find_digests(connection: Connection, tenant: str, table: str, concerned: Iterable[TableOp[Any]]) -> dict[str, str]:
    """Of the senders that are asked about: an append only adds its own."""
    asked = [op.sender for op in concerned if isinstance(op, OpenSender)]
    if not asked:
        return {}
    kept = t.row_digests.c
    where = (kept.tenant == tenant, kept.table_name == table, kept.stream.in_(asked))
    return {row.stream: row.digest for row in connection.execute(select(kept.stream, kept.digest).where(*where))}


def _find_claims(connection: Connection, import_ids: list[str]) -> dict[str, bytes]:
    if not import_ids:
        return {}
    rows = connection.execute(select(t.claims).where(t.claims.c.import_id.in_(import_ids)))
    return {row.import_id: row.rows for row in rows}


def _save_revisions(connection: Connection, before: State, after: State, at_us: int) -> None:
    """There are several if definitions waited for a table that then became concurrent."""
    known = {one.fingerprint for one in before.history}
    for definition in after.history:
        if definition.fingerprint not in known:
            named = {name: getattr(definition, name) for name in ("tenant", "revision", "generation", "fingerprint")}
            body = {"table_name": definition.table.name, "definition": definition.to_json().decode()}
            upsert(connection, t.revisions, {**named, **body, "defined_us": at_us})


def _save_queue(connection: Connection, table: Table, before: Queue, after: Queue) -> None:
    there, left = {op.id for op in before}, {op.id for op in after}
    gone = there - left
    if gone:
        connection.execute(delete(t.waiting).where(t.waiting.c.op_id.in_(gone)))
    where = {"tenant": table.tenant, "table_name": table.name}
    come = [{**where, "op_id": op.id, "op": op.to_dict()} for op in after if op.id not in there]
    if come:
        connection.execute(insert(t.waiting), come)
