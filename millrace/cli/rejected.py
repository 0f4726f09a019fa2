"""The commands about the rejected rows of an import: errors, reasons, replay, amend, discard."""

import os
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.atomic import replacing
from millrace.cli.arguments import ImportId, NoWait
from millrace.cli.printing import answer_all, print_json, printable
from millrace.cli.session import EXIT_FAILED, CommandSession
from millrace.client.documents import ImportDocument, RejectedRow
from millrace.model.errors import MillraceError

if TYPE_CHECKING:
    from millrace.client import Millrace

SHOWN_ROWS = 20
FORMATS = {".csv": "csv", ".jsonl": "jsonl"}
Rule = Annotated[str | None, typer.Option(help="Only rows rejected by this rule.")]
app = typer.Typer()


@app.command("errors")
def errors(
    session: CommandSession,
    import_id: ImportId,
    limit: Annotated[
        int | None, typer.Option(help="At most so many rows. Default: 20, all with --json.", min=1)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write all of them to a .csv or .jsonl file.")] = None,
) -> None:
    """Show the rejected rows of an import, and why.

    Each with its row number, its line, its original text and every reason."""
    if out is not None:
        _export(session.platform, import_id, out)
    elif session.json:
        for row in session.platform.rejected.list(import_id, limit=limit):
            print_json(row)
    else:
        _show(session.platform, import_id, limit or SHOWN_ROWS)


def _export(platform: "Millrace", import_id: str, out: Path) -> None:
    """The file appears when it is complete."""
    format = FORMATS.get(out.suffix.lower())
    if format is None:
        raise typer.BadParameter(f"{out} should end in .csv or .jsonl.")
    if not out.parent.is_dir() or not os.access(out.parent, os.W_OK):
        raise typer.BadParameter(f"{out} cannot be written: its folder is missing or closed to you.")
    try:
        with replacing(out) as file:
            file.writelines(platform.rejected.export(import_id, format))
    except OSError as failed:
        raise MillraceError(f"{out} could not be written: {failed.strerror}.", code="unwritable") from None
    print(f"Written to {out}.", file=sys.stderr)


def _show(platform: "Millrace", import_id: str, limit: int) -> None:
    rows = list(islice(platform.rejected.list(import_id, limit=limit), limit))
    for row in rows:
        show_rejected(row)
    rejected = platform.imports.show(import_id)["rows"]["rejected"]
    if rejected > len(rows):
        more = f"{rejected - len(rows):,} more; `millrace errors {import_id} --out rejected.csv` writes all."
        print(more, file=sys.stderr)
    elif not rows:
        print("No row was rejected.", file=sys.stderr)


def show_rejected(row: RejectedRow) -> None:
    line = f", line {row['line']:,}" if row["line"] is not None else ""
    raw = row["raw"] if len(row["raw"]) <= 400 else row["raw"][:399] + "…"
    print(f"row {row['row']:,}{line}: {printable(raw)}")
    for reason in row["reasons"]:
        column = f"{reason['column']}: " if reason["column"] else ""
        print(printable(f"    {column}{reason['message']} [{reason['rule']}]"), flush=True)


@app.command("reasons")
def reasons(session: CommandSession, import_id: ImportId) -> None:
    """Count the rejected rows of an import by reason."""
    found = session.platform.rejected.reasons(import_id)
    headers = ("rows", "column", "rule", "for example")
    answer_all(
        session, headers, found, lambda each: (each["rows"], each["column"] or "", each["rule"], each["example"])
    )


@app.command("replay")
def replay(
    session: CommandSession,
    import_id: ImportId,
    rule: Rule = None,
    span: Annotated[str | None, typer.Option(help="The span to join.")] = None,
    no_wait: NoWait = False,
) -> None:
    """Judge rejected rows again, by the table as it is now.

    They keep their versions, so they never replace newer rows. Each row can be replayed, amended or discarded once."""
    _follow(session, session.platform.rejected.replay(import_id, rule=rule, span=span), wait=not no_wait)


@app.command("amend")
def amend(
    session: CommandSession,
    import_id: ImportId,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Corrected rows.", exists=True)],
    rule: Rule = None,
    no_wait: NoWait = False,
) -> None:
    """Import corrected rows in place of rejected ones."""
    made = session.platform.rejected.amend(import_id, file, rule=rule)
    _follow(session, {"import": made["id"]}, wait=not no_wait)


@app.command("discard")
def discard(session: CommandSession, import_id: ImportId, rule: Rule = None) -> None:
    """Give rejected rows up."""
    _follow(session, session.platform.rejected.discard(import_id, rule=rule), wait=False)


def _follow(session: CommandSession, asked: dict[str, Any], *, wait: bool) -> None:
    """Shows the import that the request made; with `wait` once it is over, and exits by how it ended."""
    made = asked["import"]
    imports = session.platform.imports
    document = imports.wait(made) if wait else imports.show(made)
    if session.json:
        print_json({**document, **{name: value for name, value in asked.items() if name != "import"}})
    else:
        _report(asked, document)
    raise typer.Exit(EXIT_FAILED if wait and document["state"] != "completed" else 0)


def _report(asked: dict[str, Any], document: ImportDocument) -> None:
    rows = document["rows"]
    line = f"{document['id']} {document['state']}"
    if "rows" in asked:
        line += f", {asked['rows']:,} rows chosen"
    if rows["read"]:
        line += f": {rows['accepted']:,} accepted, {rows['rejected']:,} rejected"
    print(line)
    if asked.get("only_amendable"):
        print(f"{asked['only_amendable']:,} have a key that occurs again in their chunk: amend them.")
