"""The commands about the rejected rows of an import: errors, reasons, replay, amend, discard."""

import os
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from millrace.atomic import replacing
from millrace.cli.arguments import ImportId, NoWait
from millrace.cli.printing import answer_all, counted, print_json, printable
from millrace.cli.session import EXIT_FAILED, CommandSession
from millrace.client.documents import ImportDocument, RejectedRow
from millrace.model.errors import MillraceError

if TYPE_CHECKING:
    from millrace.client import Millrace

SHOWN_ROWS = 20
FORMATS = {".csv": "csv", ".jsonl": "jsonl"}
CUT_SHORT = ("row_too_long", "undecodable", "unclosed_quote")
Rule = Annotated[str | None, typer.Option(help="Only rows rejected by this rule.")]
State = Annotated[
    Literal["open", "amended", "replayed", "discarded"] | None, typer.Option(help="Only rows in this state.")
]
app = typer.Typer()


@app.command("errors")
def errors(
    session: CommandSession,
    import_id: ImportId,
    limit: Annotated[
        int | None, typer.Option(help="At most so many rows. Default: 20, all with --json.", min=1)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write a report on all of them to a .csv or .jsonl file.")] = None,
    as_file: Annotated[
        Path | None,
        typer.Option(
            "--as-file", help="Write the rows that are open as a file that `amend` takes when it is corrected."
        ),
    ] = None,
    state: State = None,
) -> None:
    """Show the rejected rows of an import, and why.

    Each with its row number, its line, its original text and every reason."""
    if as_file is not None:
        _write(as_file, session.platform.rejected.export(import_id, "file", state=state or "open"))
        _report_left_out(session.platform, import_id, state or "open")
    elif out is not None:
        _export(session.platform, import_id, out, state)
    elif session.json:
        for row in session.platform.rejected.list(import_id, limit=limit, state=state):
            print_json(row)
    else:
        _show(session.platform, import_id, limit or SHOWN_ROWS, state)


def _export(platform: "Millrace", import_id: str, out: Path, state: str | None) -> None:
    format = FORMATS.get(out.suffix.lower())
    if format is None:
        raise typer.BadParameter(f"{out} should end in .csv or .jsonl.")
    _write(out, platform.rejected.export(import_id, format, state=state))


def _write(out: Path, pieces: Iterator[bytes]) -> None:
    """The file appears when it is complete."""
    if not out.parent.is_dir() or not os.access(out.parent, os.W_OK):
        raise typer.BadParameter(f"{out} cannot be written: its folder is missing or closed to you.")
    try:
        with replacing(out) as file:
            file.writelines(pieces)
    except OSError as failed:
        raise MillraceError(f"{out} could not be written: {failed.strerror}.", code="unwritable") from None
    print(f"Written to {out}.", file=sys.stderr)


def _report_left_out(platform: "Millrace", import_id: str, state: str) -> None:
    found = platform.rejected.reasons(import_id, state=state)
    left_out = sum(each["rows"] for each in found if each["rule"] in CUT_SHORT or each["rule"].startswith("sink:"))
    if left_out:
        were = "was" if left_out == 1 else "were"
        print(
            f"{counted(left_out, 'row')} {were} not kept whole and left out; see `millrace reasons {import_id}`.",
            file=sys.stderr,
        )


def _show(platform: "Millrace", import_id: str, limit: int, state: str | None) -> None:
    rows = list(islice(platform.rejected.list(import_id, limit=limit, state=state), limit))
    for row in rows:
        show_rejected(row)
    document = platform.imports.show(import_id)
    states = document.get("rejected_rows", {})
    rejected = states.get(state, 0) if state else document["rows"]["rejected"]
    if rejected > len(rows):
        more = f"{rejected - len(rows):,} more; `millrace errors {import_id} --out rejected.csv` writes all."
        print(more, file=sys.stderr)
    elif not rows:
        print(f"No rejected row is {state}." if state else "No row was rejected.", file=sys.stderr)
    if document["rows"]["rejected"]:
        print(f"{states_line(states)}.", file=sys.stderr)


def states_line(states: Mapping[str, int]) -> str:
    """The rejected rows by state: 27 open, 1 amended."""
    return ", ".join(f"{count:,} {state}" for state, count in states.items())


def show_rejected(row: RejectedRow) -> None:
    line = f", line {row['line']:,}" if row["line"] is not None else ""
    raw = row["raw"] if len(row["raw"]) <= 400 else row["raw"][:399] + "…"
    state = row.get("state", "open")
    closed = "" if state == "open" else f" ({state})"
    print(f"row {row['row']:,}{line}{closed}: {printable(raw)}")
    for reason in row["reasons"]:
        column = f"{reason['column']}: " if reason["column"] else ""
        print(printable(f"    {column}{reason['message']} [{reason['rule']}]"), flush=True)


@app.command("reasons")
def reasons(session: CommandSession, import_id: ImportId, state: State = None) -> None:
    """Count the rejected rows of an import by reason."""
    found = session.platform.rejected.reasons(import_id, state=state)
    headers = ("rows", "open", "column", "rule", "for example")
    answer_all(session, headers, found, _reason_row)


def _reason_row(each: Mapping[str, Any]) -> tuple[object, ...]:
    return each["rows"], each.get("open", ""), each["column"] or "", each["rule"], each["example"]


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
    add: Annotated[bool, typer.Option("--add", help="Also import rows that replace no rejected row.")] = False,
    no_wait: NoWait = False,
) -> None:
    """Import corrected rows in place of rejected ones.

    A row replaces the rejected row whose number is in its column _row, as `errors --as-file`
    writes it. Without that column, it replaces the rejected row with the same primary key."""
    made = session.platform.rejected.amend(import_id, file, rule=rule, add=add)
    closes = {"closed": made["closed"], "of": made["of"], "open": made["open"], "added": made["added"]}
    _follow(session, {"import": made["id"], **closes}, wait=not no_wait)


@app.command("discard")
def discard(session: CommandSession, import_id: ImportId, rule: Rule = None) -> None:
    """Give rejected rows up."""
    _follow(session, session.platform.rejected.discard(import_id, rule=rule), wait=False)


def _follow(session: CommandSession, asked: dict[str, Any], *, wait: bool) -> None:
    """Shows the import that the request made; with `wait` once it is over, and exits by how it ended."""
    made = asked["import"]
    imports = session.platform.imports
    document = imports.wait(made) if wait else imports.show(made)
    if "closed" in asked and wait and document["state"] != "completed":
        # Rows of an amendment that failed are open again, unless one could be stored twice.
        asked = {name: value for name, value in asked.items() if name == "import"}
    if session.json:
        print_json({**document, **{name: value for name, value in asked.items() if name != "import"}})
    else:
        _report(asked, document)
    raise typer.Exit(EXIT_FAILED if wait and document["state"] != "completed" else 0)


def _report(asked: dict[str, Any], document: ImportDocument) -> None:
    rows = document["rows"]
    line = f"{document['id']} {document['state']}"
    if "rows" in asked:
        line += f", {counted(asked['rows'], 'row')} chosen"
    if rows["read"]:
        line += f": {rows['accepted']:,} accepted, {rows['rejected']:,} rejected"
    if "closed" in asked:
        line += f"; {asked['closed']:,} of {asked['of']:,} closed, {asked['open']:,} open"
        line += f", {counted(asked['added'], 'row')} added" if asked["added"] else ""
    print(line)
    if asked.get("only_amendable"):
        print(f"{asked['only_amendable']:,} have a key that occurs again in their chunk: amend them.")
