"""The what-if itself: runs the real cutter and the real judge over a file or over chunks, and makes a report.

The work is bounded by rows, plain bytes and seconds. One chunk is in memory at a time."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from millrace.formats.cut import CutPiece, Cutter, UploadOptions, open_cutter
from millrace.formats.matching import refuse_mismatch
from millrace.infer.advising import Advice, advise
from millrace.infer.observing import Observed
from millrace.infer.tally import ReasonCount, Tally
from millrace.model.chunk import ROWS, ChunkHeader
from millrace.model.errors import Invalid
from millrace.model.table import Definition
from millrace.validate.judge import judge

MOST_BYTES = 1 << 30
_NO_IMPORT = "what-if"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The chunk that reaches a bound is judged completely. Waiting for bytes does not count as seconds. `examples`: how many
    are kept for each reason."""

    rows: int | None = None
    bytes: int = MOST_BYTES
    seconds: float | None = None
    examples: int = 3


class TrialRun:
    """Judges chunks one by one until a bound is reached. Without `advising` it gives no advice about types."""

    def __init__(self, definition: Definition, bounds: Bounds, *, advising: bool = True) -> None:
        self.definition = definition
        self.tally = Tally(bounds.examples)
        self.observed = Observed(definition.columns)
        self.stopped_by: str | None = None
        self._bounds = bounds
        self._advising = advising
        self._seconds = 0.0

    def take(self, header: ChunkHeader, body: bytes) -> None:
        begun = time.monotonic()
        self.tally.add(judge(header, body, self.definition), len(body))
        if self._advising and header.oversize is None:
            self.observed.look_at(header, body)
        self._seconds += time.monotonic() - begun
        self._note_bounds()

    def take_sent(self, header: ChunkHeader, body: bytes) -> None:
        """Judges a chunk of an earlier import. It checks again whether the file suits the table."""
        if header.kind != ROWS:
            return
        if header.layout is not None and not header.deletes:
            try:
                refuse_mismatch(header.layout.columns, self.definition, f"The file of {header.import_id}")
            except Invalid as refusal:
                self.tally.refuse(header.rows, len(body), header.first_row, str(refusal))
                return
        self.take(header, body)

    def advice(self, reasons: Sequence[ReasonCount] | None = None) -> list[Advice]:
        """Advice about all reasons, or about some."""
        return advise(self.definition, self.tally.reasons if reasons is None else reasons, self.observed)

    def report(self) -> dict[str, Any]:
        """The report for callers, as JSON values."""
        tally, definition = self.tally, self.definition
        return {
            "tenant": definition.tenant,
            "table": definition.table.name,
            "revision": definition.revision,
            "rows": {"read": tally.read, "passed": tally.read - tally.failed, "failed": tally.failed},
            "repeated_headers": tally.repeated_headers,
            "chunks": tally.chunks,
            "bytes": tally.bytes,
            "stopped_by": self.stopped_by,
            "reasons": [asdict(reason) for reason in tally.reasons],
            "columns": [advice.report() for advice in self.advice()],
            "seconds": round(self._seconds, 3),
        }

    def _note_bounds(self) -> None:
        bounds = self._bounds
        if bounds.rows is not None and self.tally.read >= bounds.rows:
            self.stopped_by = "rows"
        elif self.tally.bytes >= bounds.bytes:
            self.stopped_by = "bytes"
        elif bounds.seconds is not None and self._seconds >= bounds.seconds:
            self.stopped_by = "seconds"


def try_file(
    pieces: Iterable[bytes],
    definition: Definition,
    options: UploadOptions,
    bounds: Bounds,
    spool_dir: Path | None = None,
    *,
    advising: bool = True,
) -> TrialRun:
    """Judges a file as an import would. Refuses a file that an import would refuse."""
    trial = TrialRun(definition, bounds, advising=advising)
    cutter = open_cutter(definition, options, spool_dir=spool_dir)
    try:
        for number, cut in enumerate(_cuts(pieces, cutter)):
            trial.take(_stamp(cut, number, definition), cut.body)
            if trial.stopped_by:
                break
        trial.tally.repeated_headers = cutter.repeated_headers()
    finally:
        cutter.close()
    return trial


def _cuts(pieces: Iterable[bytes], cutter: Cutter) -> Iterator[CutPiece]:
    for piece in pieces:
        yield from cutter.feed(piece)
    yield from cutter.finish()


def _stamp(cut: CutPiece, number: int, definition: Definition) -> ChunkHeader:
    return ChunkHeader(
        import_id=_NO_IMPORT,
        number=number,
        # The version is the clock for rules about fresh rows: as if the file came now.
        version=time.time_ns() // 1000,
        definition=definition.fingerprint,
        encoding=cut.encoding,
        first_row=cut.first_row,
        first_line=cut.first_line,
        rows=cut.rows,
        plain_bytes=len(cut.body),
        checksum=0,
        layout=cut.layout,
        oversize=cut.oversize,
    )
