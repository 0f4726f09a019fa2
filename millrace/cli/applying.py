"""The `apply` command: declarations from files and folders, agreements first, then tables; says what each came to.

Refuses a table whose tenant nothing names, and a document that is neither agreement nor table."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from millrace.cli.declarations import Declaration, read_declarations
from millrace.cli.printing import print_json, printable
from millrace.cli.session import EXIT_UNREACHABLE, Session
from millrace.client import Millrace
from millrace.client.documents import DeclarationResult, DeclarationWarning, Difference
from millrace.model.errors import Refused


def run(
    session: Session,
    paths: list[Path],
    tenant: str | None,
    *,
    new_generation: bool = False,
    strict: bool = False,
    check: bool = True,
) -> int:
    declarations = read_declarations(paths, tenant)
    pending = False
    with Millrace.from_home(session.home) as connection:
        if strict:
            _refuse_doubtful(connection, declarations, new_generation)
        for declaration in declarations:
            applied = apply_one(connection, declaration, new_generation, strict, check)
            pending |= _outcome(applied) == "requested"
            _say(session, declaration, applied)
    return EXIT_UNREACHABLE if pending else 0


def _refuse_doubtful(connection: Millrace, declarations: list[Declaration], new_generation: bool) -> None:
    """All of them, before the first is applied."""
    for declaration in declarations:
        refusal = difference(connection, declaration, new_generation, strict=True)["refusal"]
        if refusal is not None:
            raise Refused(f"{declaration.name}: {refusal['message']}", remedy=refusal["remedy"], code=refusal["code"])


def difference(connection: Millrace, declaration: Declaration, new_generation: bool, strict: bool) -> Difference:
    """What it would change, or why it would be refused."""
    tenant, document = declaration.tenant, declaration.document
    if declaration.table is None:
        return connection.tenants.diff(tenant, document, strict=strict)
    return connection.tables.diff(tenant, declaration.table, document, new_generation=new_generation, strict=strict)


def apply_one(
    connection: Millrace,
    declaration: Declaration,
    new_generation: bool = False,
    strict: bool = False,
    check: bool = True,
) -> DeclarationResult:
    tenant, document = declaration.tenant, declaration.document
    if declaration.table is None:
        return connection.tenants.apply(tenant, document, strict=strict)
    told = {"new_generation": new_generation, "strict": strict, "check": check}
    return connection.tables.apply(tenant, declaration.table, document, **told)


def _outcome(applied: DeclarationResult) -> str:
    if "changed" not in applied:
        return "requested"
    if not applied["changed"]:
        return "unchanged"
    return "created" if applied.get("revision") == 1 else "changed"


def _say(session: Session, declaration: Declaration, applied: DeclarationResult) -> None:
    outcome, doubts = _outcome(applied), applied.get("warnings", [])
    if session.json:
        told = {"tenant": declaration.tenant, "table": declaration.table, "outcome": outcome}
        print_json({**told, "revision": applied.get("revision"), "warnings": doubts})
        return
    what = "tenant" if declaration.table is None else "table"
    waits = " (the controller has not evaluated it yet)" if outcome == "requested" else ""
    print(f"{what} {declaration.name} {outcome}{waits}", flush=True)
    for line in warning_lines(doubts):
        print(f"  {printable(line)}", flush=True)


def warning_lines(doubts: Iterable[DeclarationWarning]) -> Iterator[str]:
    for doubt in doubts:
        yield f"warning: {doubt['field']} {doubt['message']} {doubt['likely']}"
