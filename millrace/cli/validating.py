"""The command validate: a file judged by the platform, or here by a declaration; shows what would pass, fail and fit."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from millrace.cli import arguments as a
from millrace.cli.declarations import Declaration, read_declarations
from millrace.cli.printing import counted, print_json, print_table, printable
from millrace.cli.session import EXIT_FAILED, CommandSession
from millrace.client import FileOptions
from millrace.client.documents import TrialReason, TrialReport
from millrace.model.errors import Invalid

# The tenant of a table that is declared only in a file; it is never shown.
_NOBODY = "nobody"
_SHOWN_VALUE = 60
app = typer.Typer()


@dataclass(frozen=True, slots=True)
class TrialQuestion:
    """What is to be judged, by what. `options`: how the file differs from the declaration."""

    file: str | None
    table: str | None
    declaration: Path | None
    last: int | None
    since: datetime | None
    rows: int | None
    examples: int
    options: FileOptions


@app.command("validate")
def validate(
    session: CommandSession,
    file: Annotated[str | None, typer.Argument(metavar="[FILE]", help="A file, or - for standard input.")] = None,
    table: Annotated[str | None, typer.Option(metavar="TENANT/TABLE", help="The table to judge by.")] = None,
    declaration: Annotated[
        Path | None,
        typer.Option("--with", help="Judge by this declaration instead; without --table no platform is needed."),
    ] = None,
    last: Annotated[
        int | None, typer.Option(help="Instead of a file: the last N chunks sent to the table.", min=1)
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            parser=a.moment,
            metavar="TIME",
            help="Instead of a file: what the table was sent since 2h or 3d ago, or a time, and keeps.",
        ),
    ] = None,
    rows: Annotated[int | None, typer.Option(help="Stop after about so many rows.", min=1)] = None,
    examples: Annotated[int, typer.Option(help="Of each reason.", min=0, max=20)] = 3,
    format: a.Format = None,
    delimiter: a.Delimiter = None,
    quote: a.Quote = None,
    header: a.Header = None,
    null_text: a.NullText = None,
    encoding: a.Encoding = None,
    compression: a.Compression = None,
) -> None:
    """Judge a file without importing it.

    Shows which rows would pass and fail and why, and for each failing column what to declare
    or which rows to mend. Exit 0: every row passes; 1: some would be rejected, or the file
    would be refused."""
    options = FileOptions(format, header, delimiter, quote, null_text, encoding, compression)
    if file not in (None, a.STDIN):
        options = options.for_file(str(file))
    question = TrialQuestion(file, table, declaration, last, since, rows, examples, options)
    _refuse_contradictions(question)
    report = _ask_here(question) if table is None else _ask_platform(session, question, table)
    if session.json:
        print_json(report)
    else:
        _show(report, question)
    raise typer.Exit(EXIT_FAILED if report["rows"]["failed"] else 0)


def _refuse_contradictions(question: TrialQuestion) -> None:
    given = [one for one in (question.file, question.last, question.since) if one is not None]
    if len(given) != 1:
        raise typer.BadParameter("Give a FILE, or --last N or --since TIME to judge what the table was sent.")
    if question.table is None and question.file is None:
        raise typer.BadParameter("--last and --since need --table TENANT/TABLE.")
    if question.table is None and question.declaration is None:
        raise typer.BadParameter("Give --table TENANT/TABLE, --with DECLARATION, or both.")
    if question.file not in (None, a.STDIN) and not Path(question.file or "").is_file():
        raise typer.BadParameter(f"{question.file} is not a file.")


def _ask_platform(session: CommandSession, question: TrialQuestion, target: str) -> TrialReport:
    tenant, table = a.split_target(target)
    declared = _declared(question.declaration, tenant, table) if question.declaration else None
    bounds = {"rows": question.rows, "examples": question.examples}
    trial, document = session.platform.whatif, declared.document if declared else None
    if question.last is not None:
        return trial.last_chunks(tenant, table, question.last, declaration=document, **bounds)
    if question.since is not None:
        return trial.kept_chunks(tenant, table, question.since, declaration=document, **bounds)
    with _opened(question.file) as stream:
        return trial.stream(tenant, table, stream, question.options, declaration=document, **bounds)


def _ask_here(question: TrialQuestion) -> TrialReport:
    assert question.declaration is not None
    declared = _declared(question.declaration, _NOBODY, None)
    with _opened(question.file) as stream:
        # What judges takes longer to load than the platform takes to answer.
        from millrace.cli.trying import report_on  # noqa: PLC0415

        return report_on(stream, declared, question.options, question.rows, question.examples)


def _declared(path: Path, tenant: str, table: str | None) -> Declaration:
    """The one table of the file, or the one of this name."""
    tables = [each for each in read_declarations([path], tenant) if each.table is not None]
    named = [each for each in tables if table is None or each.table == table]
    if len(named) == 1:
        return named[0]
    found = ", ".join(str(each.table) for each in tables) or "none"
    raise Invalid(f"{path} should declare {table or 'one table'}; it declares {found}.", remedy="Give the right file.")


@contextmanager
def _opened(file: str | None) -> Iterator[BinaryIO]:
    if file == a.STDIN:
        yield sys.stdin.buffer
        return
    with Path(file or "").open("rb") as stream:
        yield stream


def _show(report: TrialReport, question: TrialQuestion) -> None:
    rows = report["rows"]
    by = "the declaration" if report.get("judged_by") == "declaration" else f"revision {report['revision']}"
    what = report.get("file") or _chunks_of(report, question)
    target = f"{report['tenant']}/{report['table']}".lstrip("/")
    print(printable(f"{what} against {target} ({by}):"), end=" ")
    print(f"{counted(rows['read'], 'row')} read, {rows['passed']:,} would pass, {rows['failed']:,} would fail")
    if report["reasons"]:
        print()
        lines = [(each["rule"], each["column"] or "", each["rows"], _examples(each)) for each in report["reasons"]]
        print_table(("reason", "column", "rows", "examples"), lines)
    if report["columns"]:
        print()
        for advice in report["columns"]:
            print(printable(f"{advice['column']} {advice['advice']}."))
    for remark in _remarks(report):
        print(remark, file=sys.stderr)


def _chunks_of(report: TrialReport, question: TrialQuestion) -> str:
    if question.file is not None:
        return "The file"
    since = f" since {report['since']}" if "since" in report else ""
    return f"The last {report['chunks']:,} chunks" if question.last else f"{report['chunks']:,} chunks{since}"


def _examples(reason: TrialReason) -> str:
    return "; ".join(
        f"{'line' if each['line'] else 'row'} {each['line'] or each['row']:,}: {_shown(each['value'], each['message'])}"
        for each in reason["examples"]
    )


def _shown(value: str | None, message: str) -> str:
    text = message if value is None else value
    return text if len(text) <= _SHOWN_VALUE else text[: _SHOWN_VALUE - 1] + "…"


def _remarks(report: TrialReport) -> Iterator[str]:
    if repeated := report.get("repeated_headers"):
        lines = "1 line repeats" if repeated == 1 else f"{repeated:,} lines repeat"
        yield f"{lines} the header. They are no rows and are skipped (csv.repeated_header)."
    if report["stopped_by"]:
        yield f"Not all was judged: the bound on {report['stopped_by']} was reached."
    if "asked_chunks" in report and report["chunks"] < report["asked_chunks"]:
        yield f"The log still holds {report['chunks']:,} chunks of the table; older ones have been trimmed."
    if report.get("missing_chunks"):
        yield (
            f"{report['missing_chunks']:,} chunks of that time are missing: a table keeps chunks that come while it "
            "declares keep_raw_days, for so many days."
        )
    if report.get("looked_everywhere") is False:
        yield "There was no time to look through all of the log."
