"""The command import: files in, progress shown, a ledger at the end. The exit code says whether all of it is durable."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from millrace.cli import arguments as a
from millrace.cli.board import board_for
from millrace.cli.folder_spans import FolderSpans
from millrace.cli.following import follow
from millrace.cli.printing import (
    LEAST,
    LEDGER,
    ledger_line,
    ledger_row,
    print_json,
    print_table,
    printable,
    repeated_headers,
    repeated_words,
)
from millrace.cli.session import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_UNREACHABLE, CommandSession
from millrace.cli.spans import span_line
from millrace.cli.tracks import Track
from millrace.cli.uploading import FileUploads
from millrace.client import FileOptions, Millrace, Problem, Submission
from millrace.client.upload import new_key
from millrace.model.errors import MillraceError, Unavailable

app = typer.Typer()


@app.command("import")
def import_(
    session: CommandSession,
    target: a.Target,
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Files, or - for standard input.")],
    format: a.Format = None,
    delimiter: a.Delimiter = None,
    quote: a.Quote = None,
    header: a.Header = None,
    null_text: a.NullText = None,
    encoding: a.Encoding = None,
    compression: a.Compression = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(help="The same key with the same file is the same import. Several files: key:1, key:2 …"),
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return when the platform has the files.")] = False,
    fail_on_rejects: a.FailOnRejects = False,
    span: Annotated[str | None, typer.Option(help="The open span that the files join.")] = None,
    span_per_folder: Annotated[
        bool,
        typer.Option("--span-per-folder", help="Make each folder of the files a span, below --span if that is given."),
    ] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the rows whose keys the files hold.")] = False,
    no_turn: a.NoTurn = False,
) -> None:
    """Import files and wait until they are durable.

    Where rows of several files have the same key, the later file wins. How a file is
    written is declared with its table; the options say what differs."""
    tenant, table = a.split_target(target)
    tracks = [Track(name, _path(name), tenant, table) for name in files]
    options = FileOptions(format, header, delimiter, quote, null_text, encoding, compression)
    kind = "delete" if delete else "load"
    key = _key(idempotency_key)
    submission = Submission(tenant, table, options, key, kind=kind, span=span, wait_turn=not no_turn)
    spans_code = _send(session, submission, tracks, span_per_folder, wait=not no_wait)
    _report(session, tracks)
    raise typer.Exit(_exit_code(tracks, fail_on_rejects) or spans_code)


def _path(name: str) -> Path | None:
    if name == a.STDIN:
        return None
    if not Path(name).is_file():
        raise typer.BadParameter(f"{name} is not a file.")
    return Path(name)


def _key(given: str | None) -> str:
    """It travels as a header, in one line."""
    if given and not (given.isascii() and given.isprintable() and given == given.strip()):
        raise typer.BadParameter(f"{given!r:.60} cannot be an idempotency key: use printable ASCII characters.")
    return given or new_key()


def _send(
    session: CommandSession, submission: Submission, tracks: list[Track], span_per_folder: bool, *, wait: bool
) -> int:
    """The exit code that the spans of folders lead to."""
    platform = session.platform
    # Asked first: a platform that is away is reported at once, not after the patience of an upload.
    platform.health()
    below, tenant = submission.span, submission.tenant
    folders = FolderSpans(platform.spans, tenant, tracks, below) if span_per_folder else None
    uploads = FileUploads(platform, submission, tracks, folders)
    uploads.start()
    try:
        with board_for(tracks, quiet=session.json) as board:
            follow(platform, tracks, board, wait=wait)
    except KeyboardInterrupt:
        if folders is not None:
            folders.abort("Interrupted.")
        _stop(platform, uploads, tracks)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    return _report_spans(folders, wait=wait) if folders is not None else 0


def _stop(platform: Millrace, uploads: FileUploads, tracks: list[Track]) -> None:
    """Cancels what was not completely sent; the platform goes on with the rest."""
    uploads.stop(MillraceError("Interrupted.", code="interrupted"))
    for track in tracks:
        if track.import_id is None or track.is_over:
            continue
        if track.delivered.is_set():
            more = f"see `millrace status {track.import_id}`"
            print(f"{track.import_id} {printable(track.name)} goes on; {more}.", file=sys.stderr)
            continue
        try:
            platform.imports.cancel(track.import_id)
            print(f"{track.import_id} {printable(track.name)} cancelled.", file=sys.stderr)
        except MillraceError as failed:
            print(printable(f"{track.import_id} {track.name} could not be cancelled: {failed}"), file=sys.stderr)


def _report_spans(folders: FolderSpans, *, wait: bool) -> int:
    """On standard error, where they do not mix with the documents of the imports."""
    for failure in folders.failures:
        print(failure, file=sys.stderr)
    if folders.failures:
        return EXIT_FAILED
    outcomes = folders.outcomes() if wait else []
    for span in outcomes:
        print(span_line(span), file=sys.stderr)
    return EXIT_FAILED if any(span["state"] != "ended" for span in outcomes) else 0


def _report(session: CommandSession, tracks: list[Track]) -> None:
    documents = [track.final_document() for track in tracks]
    if session.json:
        for document in documents:
            print_json(document)
    elif sys.stdout.isatty():
        print_table(LEDGER, [ledger_row(document) for document in documents], least=LEAST)
    else:
        for document in documents:
            print(ledger_line(document), flush=True)
    for track, document in zip(tracks, documents, strict=True):
        if repeated_headers(document) and sys.stdout.isatty() and not session.json:
            print(f"{printable(track.name)}: {repeated_words(document)}.", file=sys.stderr)
        if error := document["error"]:
            print(printable(f"{track.name}: {error['message']} {error['remedy']}".rstrip()), file=sys.stderr)
        if track.document is not None and track.failure is not None and not isinstance(track.failure, Problem):
            # The platform knows that the import ended, but not why its upload was given up.
            print(printable(f"{track.name}: {track.failure}"), file=sys.stderr)
        if document["rows"]["rejected"] and not session.json:
            print(
                f"{printable(track.name)}: see the rejected rows with `millrace errors {document['id']}`.",
                file=sys.stderr,
            )


def _exit_code(tracks: list[Track], fail_on_rejects: bool) -> int:
    failures = [track.failure for track in tracks if track.failure is not None]
    if any(isinstance(failure, Unavailable) for failure in failures):
        return EXIT_UNREACHABLE
    documents = [track.final_document() for track in tracks]
    bad = any(document["state"] in ("failed", "cancelled", "held") for document in documents)
    rejects = fail_on_rejects and any(document["rows"]["rejected"] for document in documents)
    return EXIT_FAILED if failures or bad or rejects else 0
