"""How commands answer on standard output: tables on a terminal, aligned lines in a pipe, JSON when asked for."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from millrace.cli.fitting import fitted
from millrace.cli.session import CommandSession
from millrace.client.documents import ImportDocument

T = TypeVar("T")

LEDGER = ("import", "file", "state", "read", "accepted", "rejected", "ignored", "durable", "seconds", "rows/s")
# The first to go on a narrow terminal.
LEAST = ("rows/s", "seconds", "ignored", "durable", "file", "accepted")
_CONTROLS = {code: repr(chr(code))[1:-1] for code in (*range(32), *range(127, 160))}


def print_json(document: Any) -> None:
    print(json.dumps(document, ensure_ascii=False, separators=(", ", ": ")), flush=True)


def answer(session: CommandSession, document: Any, line: str) -> None:
    """The document for programs, the line for people."""
    if session.json:
        print_json(document)
    else:
        print(line, flush=True)


def answer_all(
    session: CommandSession,
    headers: Sequence[str],
    documents: Iterable[T],
    row: Callable[[T], Sequence[object]],
    least: Sequence[str] = (),
) -> None:
    """One JSON object a line for programs, a table with a row for each document for people."""
    if not session.json:
        return print_table(headers, [row(document) for document in documents], least=least)
    for document in documents:
        print_json(document)


def readable(cell: object) -> str:
    """For people: thousands set apart, two decimals, nothing for null."""
    if isinstance(cell, bool) or cell is None:
        return "" if cell is None else str(cell).lower()
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:,.2f}" if isinstance(cell, float) else str(cell)


def exact(cell: object) -> str:
    """For results: every digit, and `null` unlike an empty text."""
    return "null" if cell is None else str(cell).lower() if isinstance(cell, bool) else str(cell)


def printable(text: str) -> str:
    """Without characters that a terminal would obey."""
    return text.translate(_CONTROLS)


def printable_lines(text: str) -> str:
    """The same for a text of several lines."""
    return "\n".join(map(printable, text.split("\n")))


def print_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    show: Callable[[object], str] = readable,
    least: Sequence[str] = (),
) -> None:
    """Columns that hold only numbers are aligned to the right. On a terminal that is too narrow, the columns `least` are
    left out first."""
    numeric = [bool(rows) and all(isinstance(row[at], int | float) for row in rows) for at in range(len(headers))]
    cells = [[printable(show(cell)) for cell in row] for row in rows]
    width = terminal_width()
    table = fitted(headers, cells, numeric, width, least)
    for number, line in enumerate(table.lines):
        print(_bold(line) if number == 0 and width is not None else line)
    if table.left_out:
        print(f"No room for: {', '.join(table.left_out)}. Widen the terminal, or use --json.", file=sys.stderr)


def terminal_width() -> int | None:
    """None in a pipe: there nothing is too wide."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _bold(line: str) -> str:
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb" or not line
    return line if plain else f"\x1b[1m{line}\x1b[0m"


def counted(count: int, thing: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def seconds_of(document: ImportDocument) -> float | None:
    """How long an import took by the platform's clock; None while it runs."""
    started, ended = document["started_at"], document["ended_at"]
    if started is None or ended is None:
        return None
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(started)).total_seconds()


def durable(document: ImportDocument) -> str:
    """Per sink: durable chunks of those sent, and how many are parked or refused. Rejected rows only if they are parked."""
    parts = []
    for name, sink in document["sinks"].items():
        text = f"{name} {sink['durable_chunks']}/{document['chunks']['sent']}"
        text += f", {sink['parked_chunks']} parked" if sink["parked_chunks"] else ""
        parts.append(text + (f", {sink['refused_rows']} refused" if sink["refused_rows"] else ""))
    waiting = document.get("parked_rejected_chunks")
    return "; ".join([*parts, *([f"rejected rows of {waiting} chunks parked"] if waiting else [])])


def ledger_row(document: ImportDocument) -> tuple[object, ...]:
    """One import as the columns of LEDGER."""
    rows, seconds = document["rows"], seconds_of(document)
    rate = rows["read"] / seconds if seconds else document.get("rows_per_second")
    return (
        document["id"] or "-",
        document.get("file_name") or "-",
        document["state"],
        rows["read"],
        rows["accepted"],
        rows["rejected"],
        rows["ignored"],
        durable(document),
        "-" if seconds is None else round(seconds, 2),
        "-" if rate is None else round(rate),
    )


def repeated_headers(document: ImportDocument) -> int:
    """Lines that equal the header and were left out."""
    return document.get("repeated_headers", 0)


def repeated_words(document: ImportDocument) -> str:
    count = repeated_headers(document)
    return f"{count:,} repeated header line{'' if count == 1 else 's'} skipped"


def ledger_line(document: ImportDocument) -> str:
    """The same as one line of a log."""
    values = dict(zip(LEDGER, map(readable, ledger_row(document)), strict=True))
    counts = ", ".join(f"{values[name]} {name}" for name in ("read", "accepted", "rejected", "ignored"))
    target = f"{document['tenant']}/{document['table']}"
    repeated = f"{repeated_words(document)}; " if repeated_headers(document) else ""
    return (
        f"{values['import']} {target} {printable(values['file'])}: {values['state']}; rows: {counts}; {repeated}"
        f"durable: {values['durable'] or '-'}; {values['seconds']} s; {values['rows/s']} rows/s"
    )
