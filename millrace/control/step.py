"""The controller's rules: step(state, op, append time) -> (state, effects, answer). Pure: the same log gives the same state.

`State` is what one op can see: its tenant, its table, its import. What is not allowed raises Refused and changes nothing."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from millrace.model import ops
from millrace.model.chunk import CHUNK_BYTES
from millrace.model.errors import Clash, Invalid, Missing, TooLarge
from millrace.model.imports import ADMITTED, CANCELLED, FAILED, PROCESSING, STOPPING, Counts, Import, outcome
from millrace.model.ops import Op
from millrace.model.table import Definition, TableDeclaration, define

DEFAULT_MAX_BYTES = 64 << 30
# A compressed file that swells more than this is refused while it is read.
MOST_INFLATION = 500
# Each row that cannot be cut (an unclosed quote, a row over the limit) takes up to two chunks of its own.
SPARE_CHUNKS = 2001


@dataclass(frozen=True, slots=True)
class Tenant:
    name: str
    partition: int
    agreement: dict[str, Any]
    revision: int


@dataclass(frozen=True, slots=True)
class Table:
    tenant: str
    name: str
    definition: Definition
    last_version: int
    defined_us: int


@dataclass(frozen=True, slots=True)
class State:
    """`same_key` is the import that an earlier request with the same idempotency key began."""

    tenant: Tenant | None = None
    table: Table | None = None
    imp: Import | None = None
    same_key: Import | None = None


@dataclass(frozen=True, slots=True)
class Announce:
    """An event for everyone who listens; its id follows from the op, so that it is announced under one id only."""

    type: str
    subject: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Publish:
    """A definition that must be readable by the workers before anyone may name it."""

    definition: Definition


@dataclass(frozen=True, slots=True)
class Close:
    """Stop judging the import's chunks and mark where it ends in every partition."""

    import_id: str


Effect = Announce | Publish | Close
Step = tuple[State, tuple[Effect, ...], dict[str, Any]]


def step(state: State, op: Op, at_us: int, partition: int) -> Step:
    return RULES[op.kind](state, op, at_us, partition)


def _define_tenant(state: State, op: Op, at_us: int, partition: int) -> Step:
    before = state.tenant
    if before is not None and before.agreement == op.body["agreement"]:
        return state, (), {"tenant": op.tenant, "revision": before.revision, "changed": False}
    revision = before.revision + 1 if before else 1
    tenant = Tenant(op.tenant, before.partition if before else partition, op.body["agreement"], revision)
    event = Announce("tenant.defined", op.tenant, {"revision": revision})
    return replace(state, tenant=tenant), (event,), {"tenant": op.tenant, "revision": revision, "changed": True}


def _define_table(state: State, op: Op, at_us: int, partition: int) -> Step:
    if state.tenant is None:
        raise Missing(
            f"There is no tenant {op.tenant!r}.", remedy="Apply its service agreement first.", code="no_tenant"
        )
    declaration = TableDeclaration.from_dict(op.body["declaration"])
    before = state.table
    if before is not None:
        if before.definition.table == declaration:
            return state, (), _defined(before, changed=False)
        _refuse_reshaping(before.definition, declaration)
    revision = before.definition.revision + 1 if before else 1
    definition = define(op.tenant, declaration, revision)
    table = Table(op.tenant, declaration.name, definition, before.last_version if before else 0, at_us)
    event = Announce(
        "table.defined", f"{op.tenant}/{table.name}", {"revision": revision, "definition": definition.fingerprint}
    )
    return replace(state, table=table), (Publish(definition), event), _defined(table, changed=True)


def _defined(table: Table, *, changed: bool) -> dict[str, Any]:
    definition = table.definition
    return {
        "table": table.name,
        "revision": definition.revision,
        "definition": definition.fingerprint,
        "changed": changed,
    }


def _refuse_reshaping(before: Definition, after: TableDeclaration) -> None:
    """Limits, dialects and added columns with room for old rows may change; the shape that rows already have may not."""
    new = {column.name: column for column in define(before.tenant, after, 0).columns}
    for column in before.columns:
        kept = new.pop(column.name, None)
        if kept is None or kept.avro != column.avro or kept.nullable != column.nullable:
            raise Clash(
                f"Column {column.name!r} of {before.tenant}/{after.name} would change or vanish.",
                remedy="Add columns that may be null; other changes of shape need a table of another name.",
                code="incompatible",
            )
    for column in new.values():
        if not column.nullable:
            raise Clash(
                f"The added column {column.name!r} has no value for the rows already there.",
                remedy='Declare it as ["null", …].',
                code="incompatible",
            )
    if after.primary_key != before.table.primary_key:
        raise Clash(
            "The primary key of a table cannot change.", remedy="Declare a table of another name.", code="incompatible"
        )


def _begin_import(state: State, op: Op, at_us: int, partition: int) -> Step:
    if state.tenant is None or state.table is None:
        raise Missing(
            f"There is no table {op.tenant}/{op.subject}.", remedy="Apply its declaration first.", code="no_table"
        )
    if state.same_key is not None:
        return _begun_before(state, state.same_key, op)
    table = state.table
    limit = min(
        table.definition.table.max_file_bytes or DEFAULT_MAX_BYTES, op.body.get("max_bytes") or DEFAULT_MAX_BYTES
    )
    length = op.body.get("length")
    if length is not None and length > limit:
        raise TooLarge(
            f"The file has {length:,} bytes; {op.tenant}/{op.subject} takes at most {limit:,}.",
            remedy="Split the file, or raise max_file_size_mb.",
        )
    versions = _most_chunks(limit if length is None else min(limit, length * MOST_INFLATION))
    first = max(at_us, table.last_version + 1)
    imp = Import(
        id=op.id,
        tenant=op.tenant,
        table=op.subject,
        definition=table.definition.fingerprint,
        state=ADMITTED,
        first_version=first,
        versions=versions,
        sinks=table.definition.table.sinks,
        begun_us=at_us,
        options={**op.body.get("options", {}), "max_plain_bytes": limit},
        idempotency_key=op.body.get("idempotency_key"),
    )
    event = Announce("import.admitted", imp.id, {"table": f"{op.tenant}/{op.subject}", "definition": imp.definition})
    after = replace(state, table=replace(table, last_version=first + versions - 1), imp=imp)
    return after, (event,), {"import": imp.id, "repeated": False}


def _most_chunks(size: int) -> int:
    """Two neighbouring chunks together hold more than one chunk's worth, and text in another encoding may double."""
    return 2 * -(-2 * size // CHUNK_BYTES) + SPARE_CHUNKS


def _begun_before(state: State, before: Import, op: Op) -> Step:
    if before.table != op.subject:
        raise Clash(
            f"The idempotency key was used for {before.tenant}/{before.table}.",
            remedy="Use a new key for a new import.",
            code="key_reused",
        )
    return state, (), {"import": before.id, "repeated": True}


def _end_import(state: State, op: Op, at_us: int, partition: int) -> Step:
    imp = _known(state, op)
    announced = {name: int(op.body[name]) for name in ("chunks", "rows", "bytes")}
    if imp.announced == announced:
        return state, (), {"import": imp.id}
    if imp.announced is not None or not imp.accepts_chunks:
        raise Clash(f"Import {imp.id} is already {imp.state}.", code="not_open")
    ended = replace(imp, state=PROCESSING, announced=announced)
    return replace(state, imp=ended), (Announce("import.received", imp.id, announced),), {"import": imp.id}


def _close(final: str, error: Callable[[Op], dict[str, str]]) -> Callable[[State, Op, int, int], Step]:
    def rule(state: State, op: Op, at_us: int, partition: int) -> Step:
        imp = _known(state, op)
        if imp.is_over or imp.state == STOPPING:
            return state, (), {"import": imp.id, "state": imp.state}
        if op.kind != ops.CANCEL_IMPORT and imp.announced is not None:
            raise Clash(f"Import {imp.id} has been received whole.", code="not_open")
        reason = error(op)
        stopping = replace(imp, state=STOPPING, final=final, error=reason)
        effects = (Close(imp.id), Announce("import.stopping", imp.id, {"final": final, "error": reason}))
        return replace(state, imp=stopping), effects, {"import": imp.id, "state": STOPPING}

    return rule


def _cancelled(op: Op) -> dict[str, str]:
    return {"code": "cancelled", "message": "The import was cancelled.", "remedy": ""}


def _expired(op: Op) -> dict[str, str]:
    idle = int(op.body.get("idle_seconds", 0))
    message = f"The upload broke off: nothing arrived for {idle} seconds."
    return {
        "code": "expired",
        "message": message,
        "remedy": "Import the file again; rows that arrived are not doubled.",
    }


def _failed(op: Op) -> dict[str, str]:
    return {key: str(op.body["error"].get(key, "")) for key in ("code", "message", "remedy")}


def _settle(state: State, op: Op, at_us: int, partition: int) -> Step:
    imp = _known(state, op)
    if imp.is_over:
        return state, (), {"import": imp.id, "state": imp.state}
    counts = Counts(**op.body["counts"])
    final, error = outcome(imp, counts, op.body.get("failure"))
    settled = replace(imp, state=final, error=error, ended_us=at_us, counts=counts, durable=op.body["durable"])
    data = {"table": f"{imp.tenant}/{imp.table}", "rows": _rows(counts), "durable": settled.durable, "error": error}
    return replace(state, imp=settled), (Announce(f"import.{final}", imp.id, data),), {"import": imp.id, "state": final}


def _rows(counts: Counts) -> dict[str, int]:
    return {"read": counts.read, "accepted": counts.accepted, "rejected": counts.rejected, "ignored": counts.ignored}


def _known(state: State, op: Op) -> Import:
    if state.imp is None or state.imp.tenant != op.tenant:
        raise Missing(f"There is no import {op.subject}.", code="no_import")
    return state.imp


def refuse_unknown(op: Op) -> None:
    if op.kind not in RULES:
        raise Invalid(f"Unknown op {op.kind!r}.")


RULES: dict[str, Callable[[State, Op, int, int], Step]] = {
    ops.DEFINE_TENANT: _define_tenant,
    ops.DEFINE_TABLE: _define_table,
    ops.BEGIN_IMPORT: _begin_import,
    ops.END_IMPORT: _end_import,
    ops.CANCEL_IMPORT: _close(CANCELLED, _cancelled),
    ops.EXPIRE_IMPORT: _close(FAILED, _expired),
    ops.FAIL_IMPORT: _close(FAILED, _failed),
    ops.SETTLE_IMPORT: _settle,
}
