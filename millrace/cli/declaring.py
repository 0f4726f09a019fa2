"""The commands about documents: apply, diff, export, schema. Agreements are applied first, then tables.

Refuses a table whose tenant nothing names, and a document that is neither agreement nor table."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.arguments import Documents, MoreDocuments, TenantName
from millrace.cli.declarations import Declaration, read_declarations
from millrace.cli.printing import print_json, printable
from millrace.cli.session import EXIT_FAILED, EXIT_UNREACHABLE, CommandSession
from millrace.client.documents import DeclarationResult, DeclarationWarning, Difference
from millrace.model.errors import Refused

if TYPE_CHECKING:
    from millrace.client import Millrace

OwnerOption = Annotated[str | None, typer.Option(help="Of tables whose document names none.")]
NewGeneration = Annotated[
    bool, typer.Option("--new-generation", help="Allow any change of a table: it begins anew, without its rows.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse what can be read but hardly be meant.")]
app = typer.Typer()


@app.command("apply")
def apply(
    session: CommandSession,
    file: Documents,
    more: MoreDocuments = None,
    tenant: OwnerOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change, as `diff` does.")] = False,
    new_generation: NewGeneration = False,
    strict: Strict = False,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Try new sinks before anything is declared.")
    ] = True,
) -> None:
    """Declare tenants and tables.

    What is already so stays as it is. A folder may hold an agreement and the tables of its tenant."""
    if dry_run:
        return diff(session, file, more, tenant, new_generation, strict)
    declarations = read_declarations([*file, *(more or [])], tenant)
    pending = False
    if strict:
        _refuse_doubtful(session, declarations, new_generation)
    for declaration in declarations:
        applied = apply_one(session.platform, declaration, new_generation, strict, check)
        pending |= _result(applied) == "requested"
        _report(session, declaration, applied)
    raise typer.Exit(EXIT_UNREACHABLE if pending else 0)


def _refuse_doubtful(session: CommandSession, declarations: list[Declaration], new_generation: bool) -> None:
    """Judges all of them before the first is applied."""
    for declaration in declarations:
        refusal = _difference(session.platform, declaration, new_generation, strict=True)["refusal"]
        if refusal is not None:
            raise Refused(f"{declaration.name}: {refusal['message']}", remedy=refusal["remedy"], code=refusal["code"])


def apply_one(
    platform: "Millrace",
    declaration: Declaration,
    new_generation: bool = False,
    strict: bool = False,
    check: bool = True,
) -> DeclarationResult:
    tenant, document = declaration.tenant, declaration.document
    if declaration.table is None:
        return platform.tenants.apply(tenant, document, strict=strict)
    how = {"new_generation": new_generation, "strict": strict, "check": check}
    return platform.tables.apply(tenant, declaration.table, document, **how)


def _result(applied: DeclarationResult) -> str:
    if "changed" not in applied:
        return "requested"
    if not applied["changed"]:
        return "unchanged"
    return "created" if applied.get("revision") == 1 else "changed"


def _report(session: CommandSession, declaration: Declaration, applied: DeclarationResult) -> None:
    result, warnings = _result(applied), applied.get("warnings", [])
    changes = applied.get("changes", []) if result == "changed" else []
    if session.json:
        names = {"tenant": declaration.tenant, "table": declaration.table, "outcome": result}
        return print_json({**names, "revision": applied.get("revision"), "changes": changes, "warnings": warnings})
    waits = " (the controller has not evaluated it yet)" if result == "requested" else ""
    _print(declaration, f"{result}{waits}", [*changes, *_warning_lines(warnings)])


def _print(declaration: Declaration, outcome: str, details: Iterable[str]) -> None:
    what = "tenant" if declaration.table is None else "table"
    print(f"{what} {declaration.name} {outcome}", flush=True)
    for line in details:
        print(f"  {printable(line)}", flush=True)


def _warning_lines(warnings: Iterable[DeclarationWarning]) -> Iterator[str]:
    for warning in warnings:
        yield f"warning: {warning['field']} {warning['message']} {warning['likely']}"


@app.command("diff")
def diff(
    session: CommandSession,
    file: Documents,
    more: MoreDocuments = None,
    tenant: OwnerOption = None,
    new_generation: NewGeneration = False,
    strict: Strict = False,
) -> None:
    """Show what applying declarations would change.

    Also what the sinks would do to the rows already there. Exit 1 if something would be refused."""
    declarations = read_declarations([*file, *(more or [])], tenant)
    refused = False
    for declaration in declarations:
        found = _difference(session.platform, declaration, new_generation, strict)
        refused |= found["refusal"] is not None
        _report_difference(session, declaration, found)
    raise typer.Exit(EXIT_FAILED if refused else 0)


def _difference(platform: "Millrace", declaration: Declaration, new_generation: bool, strict: bool) -> Difference:
    """What it would change, or why it would be refused."""
    tenant, table, document = declaration.tenant, declaration.table, declaration.document
    if table is None:
        return platform.tenants.diff(tenant, document, strict=strict)
    return platform.tables.diff(tenant, table, document, new_generation=new_generation, strict=strict)


def _report_difference(session: CommandSession, declaration: Declaration, found: Difference) -> None:
    if session.json:
        names = {"tenant": declaration.tenant, "table": declaration.table, "outcome": _outcome(found)}
        print_json({**names, **found})
    else:
        _print(declaration, _outcome(found), _lines(found))


def _outcome(found: Difference) -> str:
    if found["refusal"] is not None:
        return "incompatible" if found["refusal"]["code"] in ("incompatible", "needs_generation") else "refused"
    if found["new"]:
        return "new"
    return "changed" if found["changes"] else "unchanged"


def _lines(found: Difference) -> Iterator[str]:
    refusal = found["refusal"]
    if refusal is not None:
        yield refusal["message"]
        if refusal["remedy"]:
            yield refusal["remedy"]
        return
    if not found["new"]:
        yield from found["changes"]
        yield from found["ddl"]
    yield from _warning_lines(found["warnings"])


@app.command("export")
def export(
    session: CommandSession,
    tenant: TenantName,
    out: Annotated[
        Path | None, typer.Option(help="A folder for one file per document; else all to standard output.")
    ] = None,
) -> None:
    """Write a tenant's agreement and tables as documents.

    They can be applied again without changing anything."""
    from millrace.cli.yaml_text import to_yaml  # noqa: PLC0415

    found = session.platform.tenants.export(tenant)
    documents = {"agreement": found["agreement"], **{f"table-{each['table']}": each for each in found["tables"]}}
    if session.json:
        for document in documents.values():
            print_json(document)
    elif out is None:
        print(to_yaml(*documents.values()), end="")
    else:
        out.mkdir(parents=True, exist_ok=True)
        for name, document in documents.items():
            path = out / f"{name}.yaml"
            path.write_text(to_yaml(document), encoding="utf-8")
            print(path)


@app.command("schema")
def schema(
    name: Annotated[str, typer.Argument(metavar="table|agreement", help="Of which document.")],
) -> None:
    """Print the JSON Schema of a document, for editors."""
    from millrace.sink.json_schemas import schema_named  # noqa: PLC0415

    print(json.dumps(schema_named(name), indent=2))
