"""A request that comes again with the same idempotency key: the same import if it brings the same."""

from millrace.control.state import State, Step
from millrace.model.content import FileMark, other_content
from millrace.model.errors import Clash
from millrace.model.imports import Import
from millrace.model.ops.imports import BeginImport, ImportBegun


def begun_before(state: State, before: Import, op: BeginImport) -> Step:
    _refuse_other_table(before.tenant, before.table, op)
    if before.kind != op.import_kind or before.of != op.of:
        raise other_content(before.id, _kinds(before.kind, before.of, op))
    _refuse_other_file(before.id, FileMark.of(before.options), op)
    return state, (), ImportBegun(before.id, repeated=True)


def refuse_unlike(first: object, op: object) -> None:
    """`first` waits for its turn, and `op` comes with the same key."""
    if not (isinstance(first, BeginImport) and isinstance(op, BeginImport)):
        return
    _refuse_other_table(first.tenant, first.table, op)
    if first.import_kind != op.import_kind or first.of != op.of:
        raise other_content(first.id, _kinds(first.import_kind, first.of, op))
    _refuse_other_file(first.id, mark_of(first), op)


def mark_of(op: BeginImport) -> FileMark:
    return FileMark(op.options.get("file_name"), op.length, op.digest)


def _refuse_other_file(import_id: str, before: FileMark, op: BeginImport) -> None:
    difference = before.difference(mark_of(op))
    if difference is not None:
        raise other_content(import_id, difference)


def _refuse_other_table(tenant: str, table: str, op: BeginImport) -> None:
    if table != op.table:
        raise Clash(
            f"The idempotency key was used for {tenant}/{table}.",
            remedy="Use a new key for a new import.",
            code="key_reused",
        )


def _kinds(kind: str, of: str | None, op: BeginImport) -> str:
    about, now = (f" of {one}" if one else "" for one in (of, op.of))
    return f"it was {_a(kind)}{about} and is now {_a(op.import_kind)}{now}"


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
