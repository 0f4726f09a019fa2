"""A span per folder of files: it begins before the folder's first file and ends after the last one.

The folder that holds all the files is a span; each folder below it is a nested span. A folder whose name cannot name a span
is refused, and so is a file without a folder."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import typer

from millrace.cli.tracks import Track
from millrace.client.documents import SpanDocument
from millrace.client.patience import Patience
from millrace.client.spans import SpanClient
from millrace.model.errors import Invalid, MillraceError, Unavailable
from millrace.model.names import checked_span, span_lineage

END_SECONDS = 60.0


def folder_spans(paths: Sequence[Path], below: str | None) -> list[str]:
    """The span of each file, in the order of the files."""
    folders = [Path(os.path.abspath(path)).parent for path in paths]
    top = Path(os.path.commonpath(folders))
    if top == top.parent:
        raise typer.BadParameter("The files have no folder in common that could name a span.")
    above = [below] if below else []
    try:
        return [checked_span("/".join([*above, *folder.relative_to(top.parent).parts])) for folder in folders]
    except Invalid as refused:
        raise typer.BadParameter(f"A folder cannot name a span: {refused}") from None


class FolderSpans:
    """The threads that send the files use it together."""

    def __init__(self, spans: SpanClient, tenant: str, tracks: Sequence[Track], below: str | None) -> None:
        if any(track.path is None for track in tracks):
            raise typer.BadParameter("Standard input lies in no folder.")
        self._spans = spans
        self._tenant = tenant
        self._below = below
        named = folder_spans([track.path for track in tracks if track.path is not None], below)
        self._of = {id(track): name for track, name in zip(tracks, named, strict=True)}
        self._missing = Counter(level for name in named for level in self._levels(name))
        self._begun: list[str] = []
        self._broken: set[str] = set()
        self._lock = threading.Lock()
        self.failures: list[MillraceError] = []

    def joined_by(self, track: Track) -> str:
        return self._of[id(track)]

    def begin_for(self, track: Track) -> None:
        """Called for each track in turn."""
        if self._below and not self._begun:
            # If the span above is missing, beginning a nested one would open it too, and nobody would end it.
            self._spans.show(self._tenant, self._below)
        for level in self._levels(self.joined_by(track)):
            if level not in self._begun:
                Patience().repeat(partial(self._spans.begin, self._tenant, level))
                self._begun.append(level)

    def handed_over(self, track: Track) -> None:
        """The platform has the whole file, or will never have it."""
        begun = [level for level in self._levels(self.joined_by(track)) if level in self._begun]
        if track.failure is not None:
            self._give_up(begun, track, track.failure)
        for level in reversed(begun):
            with self._lock:
                self._missing[level] -= 1
                complete = not self._missing[level] and level not in self._broken
            if complete:
                self._settle(partial(self._spans.end, self._tenant, level))

    def _give_up(self, begun: list[str], track: Track, failure: MillraceError) -> None:
        """A folder that lacks a file cannot end. A platform that is away aborts the span when its lease runs out."""
        with self._lock:
            self._broken.update(begun)
        if begun and not isinstance(failure, Unavailable):
            self._settle(partial(self._spans.abort, self._tenant, begun[-1], reason=f"{track.name}: {failure}"[:500]))

    def abort(self, reason: str) -> None:
        for level in [level for level in self._begun if self._missing[level] > 0]:
            with suppress(MillraceError):
                self._spans.abort(self._tenant, level, reason=reason)

    def outcomes(self) -> list[SpanDocument]:
        """What became of each span, once all files are over."""
        return [self._spans.wait(self._tenant, level, timeout=END_SECONDS) for level in self._begun]

    def _levels(self, name: str) -> list[str]:
        """The span and the levels above it that this command began, the topmost first."""
        given = span_lineage(self._below) if self._below else []
        return span_lineage(name)[len(given) :]

    def _settle(self, ask: Callable[[], SpanDocument]) -> None:
        try:
            Patience().repeat(ask)
        except MillraceError as failed:
            self.failures.append(failed)
