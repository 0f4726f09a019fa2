"""Shared by all rules that admit an import: versions from the table's clock, the new import, its place in its span."""

from dataclasses import replace
from typing import Any

from millrace.control.rules import spans
from millrace.control.state import Announce, Effect, Send, State, Table
from millrace.model.errors import Exceeded
from millrace.model.imports import ADMITTED, ALTER, PROCESSING, Import
from millrace.model.names import import_id_of
from millrace.model.ops.base import TableOp


def reserve(table: Table | None, at_us: int) -> int:
    """The first version of a block: the op's append time, unless the table's clock is already ahead of it."""
    return max(at_us, table.last_version + 1) if table else at_us


def begun(table: Table, op: TableOp[Any], kind: str, first_version: int, versions: int, at_us: int) -> Import:
    return Import(
        id=op.id,
        tenant=op.tenant,
        table=table.name,
        definition=table.definition.fingerprint,
        state=ADMITTED,
        first_version=first_version,
        versions=versions,
        sinks=table.definition.table.sinks,
        begun_us=at_us,
        kind=kind,
        span=op.joins,
    )


def received(
    table: Table, op: TableOp[Any], kind: str, version: int, at_us: int, *, chunks: int, rows: int = 0, size: int = 0
) -> Import:
    """An import whose chunks are all known when it begins."""
    announced = {"chunks": chunks, "rows": rows, "bytes": size}
    return replace(begun(table, op, kind, version, chunks, at_us), state=PROCESSING, announced=announced)


def admit(state: State, op: TableOp[Any], imp: Import, last_version: int) -> tuple[State, tuple[Effect, ...]]:
    """The import is under way: it takes the table's turn, joins its span and uses its idempotency key."""
    table = state.table
    assert table is not None
    taken = replace(table, last_version=max(table.last_version, last_version), open_imports=table.open_imports + 1)
    after = spans.join(replace(state, table=taken), op).with_import(imp)
    if imp.idempotency_key:
        after = replace(after, by_key={**after.by_key, imp.idempotency_key: imp})
    if imp.kind == ALTER:
        # The event about the table says it.
        return after, ()
    data = {"table": f"{imp.tenant}/{imp.table}", "kind": imp.kind, "definition": imp.definition, "span": imp.span}
    return after, (Announce("import.admitted", imp.id, {**data, "of": imp.of}),)


def about_import(imp: Import, what: str, data: dict[str, Any]) -> Announce:
    """A change of a definition reaches the sinks as an import, but for everybody else it is a change of the table."""
    if imp.kind == ALTER:
        return Announce(f"table.change_{what}", f"{imp.tenant}/{imp.table}", {**data, "import": imp.id})
    return Announce(f"import.{what}", imp.id, data)


def change_of_table(
    state: State, op: TableOp[Any], kind: str, chunk_kind: str, version: int, at_us: int
) -> tuple[State, tuple[Effect, ...], Import]:
    """An import of one chunk without rows. It ends when every sink has made the change."""
    table = state.table
    assert table is not None
    imp = replace(received(table, op, kind, version, at_us, chunks=1), id=import_id_of(op.id))
    after, effects = admit(state, op, imp, version)
    return after, (*effects, Send.change(imp, 0, chunk_kind)), imp


def open_imports_allowed(agreement: dict[str, object]) -> int | None:
    quotas = agreement.get("quotas")
    allowed = quotas.get("open_imports") if isinstance(quotas, dict) else None
    return None if allowed is None else int(allowed)


def one_more_import(state: State) -> State:
    """The state with one more open import. Refused if the tenant has as many as were agreed: this quota must be exact, so
    the log decides it."""
    allowed = None if state.tenant is None else open_imports_allowed(state.tenant.agreement)
    if allowed is None or state.open_imports is None or state.tenant is None:
        return state
    if state.open_imports >= allowed:
        raise Exceeded(
            f"{state.tenant.name} has {state.open_imports:,} open imports; {allowed:,} were agreed.",
            remedy="Wait until one has ended.",
            facts={"quota": "open_imports", "limit": str(allowed), "used": str(state.open_imports)},
        )
    return replace(state, open_imports=state.open_imports + 1)
