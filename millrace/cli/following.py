"""Follows imports until they are over, and shows how far they are."""

import time

from millrace.cli.board import Board, board_for
from millrace.cli.tracks import Track
from millrace.client import Millrace, Problem, Unreachable
from millrace.client.documents import ImportDocument
from millrace.client.patience import PATIENCE_SECONDS

WATCHED_AT_ONCE = 16
"""Documents asked for in one round: of thousands of files, only the oldest unfinished ones are shown anyway."""


def follow(platform: Millrace, tracks: list[Track], board: Board, *, wait: bool = True) -> None:
    """Until every import is over, or without `wait` until every file is delivered."""
    answered = time.monotonic()
    while unfinished := [track for track in tracks if not _is_done(track, wait)]:
        board.show()
        admitted = [track for track in unfinished if track.import_id is not None][:WATCHED_AT_ONCE]
        try:
            if not admitted or not wait:
                unfinished[0].delivered.wait(0.05)
            _refresh(platform, admitted, board.interval if wait else 0)
            answered = time.monotonic()
        except (Problem, Unreachable) as failed:
            if not failed.may_pass or time.monotonic() - answered > PATIENCE_SECONDS:
                raise
            time.sleep(board.interval)
    if not wait:
        _refresh(platform, [track for track in tracks if track.import_id is not None], 0)


def watch_import(platform: Millrace, document: ImportDocument, *, quiet: bool) -> ImportDocument:
    """The document of one import once it is over."""
    track = Track(document.get("file_name") or document["id"], None, document["tenant"], document["table"])
    track.import_id, track.document = document["id"], document
    track.delivered.set()
    with board_for([track], quiet=quiet) as board:
        follow(platform, [track], board)
    return track.final_document()


def _is_done(track: Track, wait: bool) -> bool:
    return track.is_over or (not wait and track.delivered.is_set())


def _refresh(platform: Millrace, tracks: list[Track], wait: float) -> None:
    """Waits for the first, so that its end is seen as soon as it comes."""
    for track in tracks[1:] + tracks[:1]:
        patience = wait if track is tracks[0] else 0
        track.document = platform.imports.show(track.import_id or "", wait=patience, or_held=True)
