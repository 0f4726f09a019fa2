"""The `apply` command: declarations from files and folders, agreements first, then tables; says what each came to.

Refuses a table whose tenant nothing names, and a document that is neither agreement nor table."""

from pathlib import Path

from millrace.cli.declarations import Declaration, read_declarations
from millrace.cli.printing import print_json
from millrace.cli.session import EXIT_UNREACHABLE, Session
from millrace.client import Millrace
from millrace.client.declaring import apply_generation
from millrace.client.documents import Applied


def run(session: Session, paths: list[Path], tenant: str | None, *, new_generation: bool = False) -> int:
    declarations = read_declarations(paths, tenant)
    pending = False
    with Millrace.from_home(session.home) as connection:
        for declaration in declarations:
            outcome = _outcome(apply_one(connection, declaration, new_generation))
            pending |= outcome == "requested"
            _say(session, declaration, outcome)
    return EXIT_UNREACHABLE if pending else 0


def apply_one(connection: Millrace, declaration: Declaration, new_generation: bool = False) -> Applied:
    if declaration.table is None:
        return connection.apply_tenant(declaration.tenant, declaration.document)
    if new_generation:
        return apply_generation(connection, declaration.tenant, declaration.table, declaration.document)
    return connection.apply_table(declaration.tenant, declaration.table, declaration.document)


def _outcome(applied: Applied) -> str:
    if "changed" not in applied:
        return "requested"
    if not applied["changed"]:
        return "unchanged"
    return "created" if applied.get("revision") == 1 else "changed"


def _say(session: Session, declaration: Declaration, outcome: str) -> None:
    if session.json:
        print_json({"tenant": declaration.tenant, "table": declaration.table, "outcome": outcome})
        return
    what = "tenant" if declaration.table is None else "table"
    waits = " (the controller has not evaluated it yet)" if outcome == "requested" else ""
    print(f"{what} {declaration.name} {outcome}{waits}", flush=True)
