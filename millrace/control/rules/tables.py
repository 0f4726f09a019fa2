"""Tables: declared, changed, emptied, dropped and restored. Each change reaches the sinks as a chunk without rows."""

from dataclasses import replace
from typing import Any

from millrace.control.rules import rule
from millrace.control.rules.admitting import change_of_table, reserve
from millrace.control.rules.tenants import TWINS, refuse_departed
from millrace.control.state import Announce, Effect, State, Step, StoreDefinition, Table, Tenant
from millrace.declare.rules_fit import applicable
from millrace.model.change_words import describe, settings_changed
from millrace.model.chunk import PREPARE
from millrace.model.chunk import TRUNCATE as TRUNCATE_CHUNK
from millrace.model.columns import parse_columns
from millrace.model.errors import Clash, Invalid, Missing
from millrace.model.evolution import check
from millrace.model.imports import ALTER, TRUNCATE, Import
from millrace.model.ops import tables as ops
from millrace.model.ops.base import TableOp
from millrace.model.rules import Rule, parse_rules
from millrace.model.rules_in_force import refuse_looser
from millrace.model.table import Definition, TableDeclaration
from millrace.model.table import define as make_definition


@rule(ops.DefineTable)
def define(state: State, op: ops.DefineTable, at_us: int, partition: int) -> Step:
    if state.tenant is None:
        raise Missing(
            f"There is no tenant {op.tenant!r}.", remedy="Apply its service agreement first.", code="no_tenant"
        )
    refuse_departed(state.tenant)
    if state.twin is not None:
        raise Clash(f"There is a table {op.tenant}/{state.twin} already.", remedy=TWINS)
    before = state.table
    if op.refresh:
        return _refreshed(state, op, at_us)
    if op.declaration is None:
        raise Invalid(f"The op {op.id} declares nothing.", code="malformed_op")
    declaration = TableDeclaration.from_dict(op.declaration)
    agreed = _agreed(state.tenant, declaration)
    refuse_looser(agreed, declaration.rules)
    if (
        before is not None
        and not before.is_dropped
        and not op.new_generation
        and _says(before.definition, declaration, agreed)
    ):
        return state, (), _defined(before, changed=False)
    return _defined_anew(state, op, at_us, declaration, op.new_generation)


def _refreshed(state: State, op: ops.DefineTable, at_us: int) -> Step:
    """The table as it is declared, by the rules that its tenant's agreement has now."""
    table = known_table(state, op)
    assert state.tenant is not None
    declaration = table.definition.table
    if _says(table.definition, declaration, _agreed(state.tenant, declaration)):
        return state, (), _defined(table, changed=False)
    return _defined_anew(state, op, at_us, declaration, wants_new=False)


def _agreed(tenant: Tenant, declaration: TableDeclaration) -> tuple[Rule, ...]:
    rules = parse_rules(tenant.agreement.get("rules") or [])
    return applicable(rules, parse_columns(declaration.schema), declaration.primary_key) if rules else ()


def _says(definition: Definition, declaration: TableDeclaration, agreed: tuple[Rule, ...]) -> bool:
    return definition.table == declaration and definition.agreed == agreed


def _defined_anew(
    state: State, op: ops.DefineTable, at_us: int, declaration: TableDeclaration, wants_new: bool
) -> Step:
    before = state.table
    version = reserve(before, at_us)
    definition = _next_definition(state, op.tenant, declaration, version, wants_new)
    table = Table(
        tenant=op.tenant,
        name=declaration.name,
        definition=definition,
        last_version=version,
        defined_us=at_us,
        floor=max(before.floor if before else 0, definition.floor),
        open_imports=before.open_imports if before else 0,
    )
    history = tuple(one for one in state.history if one.generation == definition.generation)
    defined = replace(state, table=table, history=(*history, definition))
    after, effects, imp = change_of_table(defined, op, ALTER, PREPARE, version, at_us)
    event = _definition_event(state, definition, imp)
    return after, (StoreDefinition(definition), event, *effects), _defined(table, changed=True, import_id=imp.id)


def _definition_event(before: State, definition: Definition, imp: Import) -> Announce:
    about = {"revision": definition.revision, "generation": definition.generation, "definition": definition.fingerprint}
    old = None if before.table is None else before.table.definition
    is_same = old is not None and old.generation == definition.generation
    words = settings_changed(old.table, definition.table) if old is not None else []
    if old is not None and is_same:
        words = [*describe(check(old, before.history, definition.table)), *words]
    what = "created" if old is None else "changed"
    about |= {"changes": words, "import": imp.id}
    return Announce(f"table.{what}", f"{imp.tenant}/{imp.table}", about)


def _next_definition(
    state: State, tenant: str, declaration: TableDeclaration, version: int, wants_new: bool
) -> Definition:
    before = state.table
    assert state.tenant is not None
    agreed = _agreed(state.tenant, declaration)
    if before is None:
        return make_definition(tenant, declaration, 1, agreed=agreed)
    old = before.definition
    if before.is_dropped or wants_new:
        return make_definition(tenant, declaration, old.revision + 1, old.generation + 1, floor=version, agreed=agreed)
    check(old, state.history, declaration)
    return make_definition(
        tenant, declaration, old.revision + 1, old.generation, old.floor, old.fingerprint, agreed=agreed
    )


def _defined(table: Table, *, changed: bool, import_id: str | None = None) -> ops.TableDefined:
    definition = table.definition
    return ops.TableDefined(
        table.name, definition.revision, definition.generation, definition.fingerprint, changed, import_id
    )


@rule(ops.TruncateTable)
def truncate(state: State, op: ops.TruncateTable, at_us: int, partition: int) -> Step:
    after, effects, imp = _empty(state, known_table(state, op), op, at_us, "table.truncated")
    return after, effects, ops.TableEmptied(imp.table, imp.first_version, imp.id)


def _empty(
    state: State, table: Table, op: TableOp[Any], at_us: int, event_type: str
) -> tuple[State, tuple[Effect, ...], Import]:
    version = reserve(table, at_us)
    emptied = replace(table, last_version=version, floor=version)
    state, effects, imp = change_of_table(replace(state, table=emptied), op, TRUNCATE, TRUNCATE_CHUNK, version, at_us)
    event = Announce(event_type, f"{table.tenant}/{table.name}", {"floor": version, "import": imp.id})
    return state, (event, *effects), imp


@rule(ops.DropTable)
def drop(state: State, op: ops.DropTable, at_us: int, partition: int) -> Step:
    """The table no longer exists for callers; its rows are deleted when it can no longer be restored."""
    table = known_table(state, op)
    event = Announce("table.dropped", f"{op.tenant}/{table.name}", {"generation": table.definition.generation})
    return replace(state, table=replace(table, dropped_us=at_us)), (event,), ops.TableStatus(table.name, dropped=True)


@rule(ops.RestoreTable)
def restore(state: State, op: ops.RestoreTable, at_us: int, partition: int) -> Step:
    table = state.table
    if table is None or not table.is_dropped or table.is_purged:
        raise Clash(
            f"There is no dropped table {op.tenant}/{op.table} to restore.",
            remedy="A dropped table can be restored until its retention is over or it is declared again.",
            code="not_dropped",
        )
    event = Announce("table.restored", f"{op.tenant}/{table.name}", {"generation": table.definition.generation})
    return replace(state, table=replace(table, dropped_us=None)), (event,), ops.TableStatus(table.name, dropped=False)


@rule(ops.PurgeTable)
def purge(state: State, op: ops.PurgeTable, at_us: int, partition: int) -> Step:
    """Deletes the rows of a dropped table, unless it was restored or declared again since the timer asked."""
    table = state.table
    if table is None or table.dropped_us != op.dropped_us or table.is_purged:
        return state, (), ops.TableNotPurged(op.table)
    after, effects, imp = _empty(state, replace(table, is_purged=True), op, at_us, "table.purged")
    return after, effects, ops.TablePurged(imp.table, imp.first_version, imp.id)


def known_table(state: State, op: TableOp[Any]) -> Table:
    if state.tenant is None or state.table is None or state.table.is_dropped:
        raise Missing(
            f"There is no table {op.tenant}/{op.table}.", remedy="Apply its declaration first.", code="no_table"
        )
    return state.table
