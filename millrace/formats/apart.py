"""Decodes uploads apart: Parquet, Avro and whatever is compressed, each in a process of its own whose memory, time and files
the kernel bounds (`decoder.py`). The sizes that such files declare are believed by nobody outside of it.

Plain text is cut here: its bytes become no more than they are."""

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from millrace.bounded.child import NURSERY, BoundedChild
from millrace.bounded.limits import how_many_fit
from millrace.formats.cut import CutPiece, Cutter, PieceLimits, ResumePoint, UploadOptions, open_cutter
from millrace.formats.decoder import CPU_SECONDS, DRAIN, FEED, FINISH, DecoderJob, too_much_memory
from millrace.formats.decompress import MAGIC
from millrace.model.chunk import Oversize, TextLayout
from millrace.model.errors import REFUSAL_KINDS, Invalid, MillraceError, TooLarge, Unavailable
from millrace.model.formats import format_named
from millrace.model.limits import over_limit
from millrace.model.table import Definition
from millrace.settings import LimitSettings
from millrace.turns import Share, ShareTurns

MEMORY_BYTES = 768 << 20
# The decoder gives no sign of life for this long: it hangs.
ANSWER_SECONDS = 120.0
# An upload waits this long for a decoder. It keeps a thread meanwhile, so few may wait.
PATIENCE_SECONDS = 10.0
WAITING_OF_TENANT, WAITING = 2, 4
DECODE = "millrace.formats.decoder:decode"
_LONGEST_ANSWER = 64 << 20
_LONGEST_MAGIC = max(map(len, MAGIC))
_KINDS: dict[str, type[MillraceError]] = {**REFUSAL_KINDS, Unavailable.code: Unavailable}


def start_decoders(*modules: str) -> None:
    """Prepares the process from which decoders are forked, so that the first upload need not wait for its imports. `modules`
    are imported there besides, for others that decode."""
    NURSERY.prepare(["millrace.formats.decoder", *modules])


@cache
def _turns_for(memory_bytes: int) -> ShareTurns:
    """As many decoders at once as the machine has memory for; one tenant has half of them at most."""
    most = how_many_fit(memory_bytes)
    of_tenant = max(1, most // 2)
    return ShareTurns(Share("decoders", "decoders", most, of_tenant, WAITING_OF_TENANT, 5.0, all_waiting=WAITING))


def open_apart(
    definition: Definition,
    options: UploadOptions,
    *,
    resume: ResumePoint | None = None,
    spool_dir: Path | None = None,
    memory_bytes: int = MEMORY_BYTES,
    most_of_tenant: int = LimitSettings().decoders,
) -> Cutter:
    """As `open_cutter`, but files that need decoding are decoded apart: so many of a tenant at once."""
    found = format_named(options.file_type or definition.table.file_type)

    def apart() -> Cutter:
        job = DecoderJob(definition.to_json(), asdict(options), resume, spool_dir, PieceLimits(), memory_bytes)
        return ApartCutter(definition.tenant, options.what, job, most_of_tenant)

    if found is not None and (not found.is_text or options.compression is not None):
        return apart()
    here = open_cutter(definition, options, resume=resume, spool_dir=spool_dir)
    return here if resume is not None else SniffingCutter(here, apart)


class SniffingCutter:
    """Cuts text here, unless its first bytes are those of a compressed file."""

    def __init__(self, here: Cutter, apart: Callable[[], Cutter]) -> None:
        self._cutter = here
        self._apart: Callable[[], Cutter] | None = apart
        self._head = b""

    def feed(self, piece: bytes) -> Iterator[CutPiece]:
        if self._apart is not None:
            self._head += piece
            if len(self._head) < _LONGEST_MAGIC:
                return
            piece = self._choose()
        yield from self._cutter.feed(piece)

    def finish(self) -> Iterator[CutPiece]:
        if self._apart is not None:
            yield from self._cutter.feed(self._choose())
        yield from self._cutter.finish()

    def _choose(self) -> bytes:
        assert self._apart is not None
        if self._head.startswith(tuple(MAGIC)):
            self._cutter.close()
            self._cutter = self._apart()
        head, self._head, self._apart = self._head, b"", None
        return head

    def drain(self) -> Iterator[CutPiece]:
        return self._cutter.drain()

    def resume_point(self) -> ResumePoint | None:
        return self._cutter.resume_point()

    def rows_cut(self) -> int:
        return self._cutter.rows_cut()

    def repeated_headers(self) -> int:
        return self._cutter.repeated_headers()

    def close(self) -> None:
        self._cutter.close()


class ApartCutter:
    """A cutter whose work a process of its own does. The process starts with the first bytes."""

    def __init__(self, tenant: str, what: str, job: DecoderJob, most_of_tenant: int) -> None:
        self._tenant = tenant
        self._what = what
        self._job = job
        self._most_of_tenant = most_of_tenant
        self._decoder: Decoder | None = None
        self._rows = self._repeated_headers = 0
        self._resume: ResumePoint | None = job.resume

    def feed(self, piece: bytes) -> Iterator[CutPiece]:
        return self._answers(FEED + piece)

    def finish(self) -> Iterator[CutPiece]:
        yield from self._answers(FINISH)
        self.close()

    def drain(self) -> Iterator[CutPiece]:
        return self._answers(DRAIN)

    def resume_point(self) -> ResumePoint | None:
        return self._resume

    def rows_cut(self) -> int:
        return self._rows

    def repeated_headers(self) -> int:
        return self._repeated_headers

    def close(self) -> None:
        decoder, self._decoder = self._decoder, None
        if decoder is not None:
            decoder.end()

    def __del__(self) -> None:
        self.close()

    def _answers(self, message: bytes) -> Iterator[CutPiece]:
        if self._decoder is None:
            self._decoder = Decoder(self._tenant, self._job, self._most_of_tenant)
        try:
            yield from self._read(self._decoder, message)
        except (EOFError, OSError) as gone:
            code = self._decoder.ended() if self._decoder is not None else None
            self.close()
            raise self._why(code) from gone
        except MillraceError:
            self.close()
            raise

    def _read(self, decoder: "Decoder", message: bytes) -> Iterator[CutPiece]:
        decoder.link.send_bytes(message)
        while True:
            head = json.loads(self._next(decoder))
            if "refusal" in head:
                refusal = head["refusal"]
                refused = _KINDS.get(refusal["kind"], Invalid)
                raise refused(refusal["message"], remedy=refusal["remedy"], code=refusal["code"])
            self._rows, self._resume = head["rows"], head["resume"]
            self._repeated_headers = head["repeated_headers"]
            if "done" in head:
                return
            yield _cut_of(head, self._next(decoder))

    def _next(self, decoder: "Decoder") -> bytes:
        if not decoder.link.poll(ANSWER_SECONDS):
            raise TooLarge(
                f"{self._what} was not decoded further within {ANSWER_SECONDS:g} s, after {self._rows} rows.",
                remedy="Write it again with smaller pages, blocks and row groups, or as CSV.",
            )
        return decoder.link.recv_bytes(_LONGEST_ANSWER)

    def _why(self, code: int | None) -> MillraceError:
        if code == -signal.SIGXCPU:
            return TooLarge(
                f"{self._what} takes more than {CPU_SECONDS:g} s to decode, after {self._rows} rows.",
                remedy="Write it again with smaller pages, blocks and row groups, or as CSV.",
            )
        if code in (-signal.SIGABRT, -signal.SIGKILL):
            return too_much_memory(self._what, self._job.memory_bytes)
        return Invalid(
            f"{self._what} cannot be decoded: it ended its decoder after {self._rows} rows.",
            remedy="Is it whole, and is its type the one that was named? If so, write it again.",
        )


class Decoder:
    """One running process, and the slot that it takes."""

    def __init__(self, tenant: str, job: DecoderJob, most_of_tenant: int) -> None:
        self._tenant = tenant
        self._turns = _turns_for(job.memory_bytes)
        if (used := self._turns.running(tenant)) >= most_of_tenant:
            raise over_limit(
                tenant, "decoders", "files that are decoded at once", most_of_tenant, used=used,
                remedy="Send this one again when another is done.",
            )  # fmt: skip
        self._turns.wait(tenant, PATIENCE_SECONDS)
        try:
            self._child = BoundedChild(DECODE, job)
        except BaseException:
            self._turns.give_back(tenant)
            raise
        self.link = self._child.link

    def ended(self) -> int | None:
        """What it ended with, if it did so by itself."""
        return self._child.ended()

    def end(self) -> None:
        self._child.end()
        self._turns.give_back(self._tenant)


def _cut_of(head: dict[str, Any], body: bytes) -> CutPiece:
    layout, oversize = head["layout"], head["oversize"]
    encoding, first_row, first_line, rows = head["cut"]
    return CutPiece(
        body,
        encoding,
        first_row,
        first_line,
        rows,
        None if layout is None else TextLayout(**{**layout, "columns": tuple(layout["columns"])}),
        None if oversize is None else Oversize(**oversize),
    )
