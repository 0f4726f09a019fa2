"""The commands that look at imports and tables: status, errors, cancel, tables."""

import os
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import typer

from millrace.atomic import replacing
from millrace.cli.board import board_for
from millrace.cli.importing import follow
from millrace.cli.printing import LEDGER, ledger_row, print_json, print_table, printable
from millrace.cli.session import EXIT_FAILED, Session
from millrace.cli.tracks import Track
from millrace.client import Millrace, Problem
from millrace.client.documents import ImportDocument, RejectedRow
from millrace.model.errors import MillraceError

SHOWN_ROWS = 20


def status(session: Session, import_id: str | None, watch: bool, limit: int) -> int:
    with Millrace.from_home(session.home) as connection:
        if import_id is None:
            return _latest(session, connection, limit)
        document = connection.imports.show(import_id)
        if watch:
            track = Track(document.get("file_name") or import_id, None, document["tenant"], document["table"])
            track.import_id, track.document = import_id, document
            track.delivered.set()
            with board_for([track], quiet=session.json) as board:
                follow(connection, [track], board)
            document = track.final_document()
        _show_import(session, connection, document)
    return EXIT_FAILED if watch and document["state"] != "completed" else 0


def _latest(session: Session, connection: Millrace, limit: int) -> int:
    documents = connection.imports.list(limit=limit)
    if session.json:
        for document in documents:
            print_json(document)
    else:
        headers = ("import", "table", *LEDGER[1:])
        tabled = [(d["id"], f"{d['tenant']}/{d['table']}", *ledger_row(d)[1:]) for d in documents]
        print_table(headers, tabled)
    return 0


def _show_import(session: Session, connection: Millrace, document: ImportDocument) -> None:
    try:
        location = connection.tables.show(document["tenant"], document["table"])["location"]
    except Problem:
        location = ""
    if session.json:
        print_json({**document, "location": location})
        return
    facts: list[tuple[str, object]] = [*zip(LEDGER, ledger_row(document), strict=True)]
    facts.insert(1, ("table", f"{document['tenant']}/{document['table']}"))
    facts += [("bytes", document.get("bytes")), ("started", document["started_at"]), ("ended", document["ended_at"])]
    facts.append(("location", location))
    if error := document["error"]:
        facts.append(("error", f"{error['message']} {error['remedy']}".strip()))
    print_table(("", ""), facts)


def errors(session: Session, import_id: str, limit: int | None, out: Path | None) -> None:
    with Millrace.from_home(session.home) as connection:
        if out is not None:
            _export(connection, import_id, out)
        elif session.json:
            for row in connection.rejected.list(import_id, limit=limit):
                print_json(row)
        else:
            _show_errors(connection, import_id, limit or SHOWN_ROWS)


def _export(connection: Millrace, import_id: str, out: Path) -> None:
    """The file appears when it is complete."""
    formats = {".csv": "csv", ".jsonl": "jsonl"}
    if out.suffix.lower() not in formats:
        raise typer.BadParameter(f"{out} should end in .csv or .jsonl.")
    if not out.parent.is_dir() or not os.access(out.parent, os.W_OK):
        raise typer.BadParameter(f"{out} cannot be written: its folder is missing or closed to you.")
    try:
        with replacing(out) as file:
            for piece in connection.rejected.export(import_id, formats[out.suffix.lower()]):
                file.write(piece)
    except OSError as failed:
        raise MillraceError(f"{out} could not be written: {failed.strerror}.", code="unwritable") from None
    print(f"Written to {out}.", file=sys.stderr)


def _show_errors(connection: Millrace, import_id: str, limit: int) -> None:
    rows = list(islice(connection.rejected.list(import_id, limit=limit), limit))
    for row in rows:
        show_rejected(row)
    rejected = connection.imports.show(import_id)["rows"]["rejected"]
    if rejected > len(rows):
        print(
            f"{rejected - len(rows):,} more; `millrace errors {import_id} --out rejected.csv` writes all.",
            file=sys.stderr,
        )
    elif not rows:
        print("No row was rejected.", file=sys.stderr)


def show_rejected(row: RejectedRow) -> None:
    line = f", line {row['line']:,}" if row["line"] is not None else ""
    raw = row["raw"] if len(row["raw"]) <= 400 else row["raw"][:399] + "…"
    print(f"row {row['row']:,}{line}: {printable(raw)}")
    for reason in row["reasons"]:
        column = f"{reason['column']}: " if reason["column"] else ""
        print(printable(f"    {column}{reason['message']} [{reason['rule']}]"), flush=True)


def cancel(session: Session, import_id: str) -> None:
    with Millrace.from_home(session.home) as connection:
        document = connection.imports.cancel(import_id)
    if session.json:
        print_json(document)
    else:
        print(f"{document['id']} {document['state']}")


def tables(session: Session, target: str | None) -> None:
    tenant, _, table = (target or "").partition("/")
    with Millrace.from_home(session.home) as connection:
        if table:
            _show_table(session, connection.tables.show(tenant, table))
            return
        tenants = [tenant] if tenant else [str(each["name"]) for each in connection.tenants.list()]
        found: list[Any] = [each for name in tenants for each in connection.tables.list(name)]
    if session.json:
        for each in found:
            print_json(each)
    else:
        rows = [
            (f"{t['tenant']}/{t['table']}", t["revision"], ", ".join(t["primary_key"]), t["location"]) for t in found
        ]
        print_table(("table", "revision", "primary key", "location"), rows)


def _show_table(session: Session, table: Any) -> None:
    if session.json:
        print_json(table)
        return
    print(f"{table['tenant']}/{table['table']} revision {table['revision']} at {table['location']}")
    key = {name: number for number, name in enumerate(table["primary_key"], start=1)}
    rows = [(c["name"], c["type"], c["nullable"], key.get(c["name"])) for c in table["columns"]]
    print_table(("column", "type", "nullable", "key"), rows)
