"""The `import` command: files in, progress shown, a ledger at the end; the exit code says whether all of it is durable."""

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from millrace.cli.board import Board, board_for
from millrace.cli.folder_spans import FolderSpans
from millrace.cli.printing import LEDGER, ledger_line, ledger_row, print_json, print_table
from millrace.cli.session import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_UNREACHABLE, Session
from millrace.cli.spanning import span_line
from millrace.cli.tracks import Track
from millrace.cli.uploading import FileUploads
from millrace.client import FileOptions, Millrace, Problem, Submission, Unreachable
from millrace.client.errors import may_pass
from millrace.client.patience import PATIENCE_SECONDS
from millrace.client.upload import new_key
from millrace.model.errors import MillraceError, Unavailable

STDIN = "-"
WATCHED_AT_ONCE = 16
"""Documents asked for in one round: with thousands of files only the oldest unfinished ones are interesting."""


@dataclass(frozen=True, slots=True)
class Order:
    """What the user asked for. `written`: how the files differ from the declaration."""

    target: str
    files: tuple[str, ...]
    written: dict[str, Any] = field(default_factory=dict)
    idempotency_key: str | None = None
    wait: bool = True
    fail_on_rejects: bool = False
    span: str | None = None
    span_per_folder: bool = False
    delete: bool = False
    wait_turn: bool = True


def run(session: Session, order: Order) -> int:
    tenant, table = split_target(order.target)
    tracks = [Track(name, _path(name), tenant, table) for name in order.files]
    key = _key(order.idempotency_key)
    kind = "delete" if order.delete else "load"
    options = FileOptions(**order.written)
    submission = Submission(tenant, table, options, key, kind=kind, span=order.span, wait_turn=order.wait_turn)
    with Millrace.from_home(session.home) as connection:
        # Asked first, so that a platform that is not there is said at once and not after the patience of an upload.
        connection.health()
        folders = FolderSpans(connection.spans, tenant, tracks, order.span) if order.span_per_folder else None
        uploads = FileUploads(connection, submission, tracks, folders)
        uploads.start()
        try:
            with board_for(tracks, quiet=session.json) as board:
                follow(connection, tracks, board, wait=order.wait)
        except KeyboardInterrupt:
            if folders is not None:
                folders.abort("Interrupted.")
            return _interrupted(connection, uploads, tracks)
        spans_code = _report_spans(folders, wait=order.wait) if folders is not None else 0
    _report(session, tracks)
    return _exit_code(tracks, order) or spans_code


def split_target(target: str) -> tuple[str, str]:
    tenant, slash, table = target.partition("/")
    if not (tenant and slash and table) or "/" in table:
        raise typer.BadParameter(f"{target!r} is not TENANT/TABLE.")
    return tenant, table


def _key(given: str | None) -> str:
    """It travels as a header, in one line."""
    if given and not (given.isascii() and given.isprintable() and given == given.strip()):
        raise typer.BadParameter(f"{given!r:.60} cannot be an idempotency key: use printable ASCII characters.")
    return given or new_key()


def _path(name: str) -> Path | None:
    if name == STDIN:
        return None
    if not Path(name).is_file():
        raise typer.BadParameter(f"{name} is not a file.")
    return Path(name)


def follow(connection: Millrace, tracks: list[Track], board: Board, *, wait: bool = True) -> None:
    """Until every import is over, or without `wait` until every file is delivered."""
    answered = time.monotonic()
    while unfinished := [track for track in tracks if not _is_done(track, wait)]:
        board.show()
        admitted = [track for track in unfinished if track.import_id is not None][:WATCHED_AT_ONCE]
        try:
            if not admitted or not wait:
                unfinished[0].delivered.wait(0.05)
            _refresh(connection, admitted, board.interval if wait else 0)
            answered = time.monotonic()
        except (Problem, Unreachable) as failed:
            if not may_pass(failed) or time.monotonic() - answered > PATIENCE_SECONDS:
                raise
            time.sleep(board.interval)
    if not wait:
        _refresh(connection, [track for track in tracks if track.import_id is not None], 0)


def _is_done(track: Track, wait: bool) -> bool:
    return track.is_over or (not wait and track.delivered.is_set())


def _refresh(connection: Millrace, tracks: list[Track], wait: float) -> None:
    """The first is waited for, so that its end is known when it comes."""
    for track in tracks[1:] + tracks[:1]:
        patience = wait if track is tracks[0] else 0
        track.document = connection.imports.show(track.import_id or "", wait=patience, or_held=True)


def _interrupted(connection: Millrace, uploads: FileUploads, tracks: list[Track]) -> int:
    """What was not completely sent is cancelled; the platform goes on with the rest."""
    uploads.stop(MillraceError("Interrupted.", code="interrupted"))
    for track in tracks:
        if track.import_id is None or track.is_over:
            continue
        if track.delivered.is_set():
            print(f"{track.import_id} {track.name} goes on; see `millrace status {track.import_id}`.", file=sys.stderr)
            continue
        try:
            connection.imports.cancel(track.import_id)
            print(f"{track.import_id} {track.name} cancelled.", file=sys.stderr)
        except MillraceError as failed:
            print(f"{track.import_id} {track.name} could not be cancelled: {failed}", file=sys.stderr)
    return EXIT_INTERRUPTED


def _report(session: Session, tracks: list[Track]) -> None:
    documents = [track.final_document() for track in tracks]
    if session.json:
        for document in documents:
            print_json(document)
    elif sys.stdout.isatty():
        print_table(LEDGER, [ledger_row(document) for document in documents])
    else:
        for document in documents:
            print(ledger_line(document), flush=True)
    for track, document in zip(tracks, documents, strict=True):
        if error := document["error"]:
            print(f"{track.name}: {error['message']} {error['remedy']}".rstrip(), file=sys.stderr)
        if track.document is not None and track.failure is not None and not isinstance(track.failure, Problem):
            # The platform knows that the import ended, and not why its sender gave up.
            print(f"{track.name}: {track.failure}", file=sys.stderr)
        if document["rows"]["rejected"] and not session.json:
            print(f"{track.name}: see the rejected rows with `millrace errors {document['id']}`.", file=sys.stderr)


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


def _exit_code(tracks: list[Track], order: Order) -> int:
    failures = [track.failure for track in tracks if track.failure is not None]
    if any(isinstance(failure, Unavailable) for failure in failures):
        return EXIT_UNREACHABLE
    documents = [track.final_document() for track in tracks]
    bad = any(document["state"] in ("failed", "cancelled", "held") for document in documents)
    rejects = order.fail_on_rejects and any(document["rows"]["rejected"] for document in documents)
    return EXIT_FAILED if failures or bad or rejects else 0
