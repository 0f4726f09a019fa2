"""The `diff` command, and `apply --dry-run`: what declarations would change, document by document; nothing is done.

Exit 0 if everything could be applied, 1 if something would be refused."""

from collections.abc import Iterator
from pathlib import Path

from millrace.cli.applying import difference, warning_lines
from millrace.cli.declarations import Declaration, read_declarations
from millrace.cli.printing import print_json, printable
from millrace.cli.session import EXIT_FAILED, Session
from millrace.client import Millrace
from millrace.client.documents import Difference


def run(
    session: Session, paths: list[Path], tenant: str | None, *, new_generation: bool = False, strict: bool = False
) -> int:
    declarations = read_declarations(paths, tenant)
    refused = False
    with Millrace.from_home(session.home) as connection:
        for declaration in declarations:
            found = difference(connection, declaration, new_generation, strict)
            refused |= found["refusal"] is not None
            _say(session, declaration, found)
    return EXIT_FAILED if refused else 0


def outcome(found: Difference) -> str:
    if found["refusal"] is not None:
        return "incompatible" if found["refusal"]["code"] in ("incompatible", "needs_generation") else "refused"
    if found["new"]:
        return "new"
    return "changed" if found["changes"] else "unchanged"


def _say(session: Session, declaration: Declaration, found: Difference) -> None:
    if session.json:
        told = {"tenant": declaration.tenant, "table": declaration.table, "outcome": outcome(found)}
        print_json({**told, **found})
        return
    what = "tenant" if declaration.table is None else "table"
    print(f"{what} {declaration.name} {outcome(found)}")
    for line in _lines(found):
        print(f"  {printable(line)}", flush=True)


def _lines(found: Difference) -> Iterator[str]:
    refusal = found["refusal"]
    if refusal is not None:
        yield refusal["message"]
        if refusal["remedy"]:
            yield refusal["remedy"]
    elif not found["new"]:
        yield from found["changes"]
        yield from found["ddl"]
    if refusal is None:
        yield from warning_lines(found["warnings"])
