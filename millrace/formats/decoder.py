"""A process that decodes one upload: pieces of the file in, cut pieces or a refusal out. The kernel bounds its memory, its
time and what it writes.

A message from the parent is one octet and, for FEED, bytes. An answer is any number of cut pieces, each as a JSON head and a
body, and at the end a JSON head that says `done`, or what was refused."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

# Arrow imports it when the first array is cast: that would be once for every upload.
import pyarrow.compute  # noqa: F401

from millrace.bounded.limits import MIB, CpuBound, bound_process
from millrace.formats.cut import CutPiece, Cutter, PieceLimits, ResumePoint, UploadOptions, open_cutter
from millrace.model.errors import Invalid, MillraceError, TooLarge
from millrace.model.table import Definition

FEED, FINISH, DRAIN = b"F", b"E", b"D"
# A file may take this long to decode, and longer by what is read and given.
CPU_SECONDS = 60.0
CPU_SECONDS_PER_MIB = 1.0


@dataclass(frozen=True, slots=True)
class DecoderJob:
    definition: bytes
    options: dict[str, Any]
    resume: ResumePoint | None
    spool_dir: Path | None
    limits: PieceLimits
    memory_bytes: int


def decode(link: Connection, job: DecoderJob) -> None:
    """The life of the process; ends when the parent closes its end."""
    most_written = job.options.get("max_plain_bytes")
    # A spool takes an eighth more than the plain file at most.
    bound_process(job.memory_bytes, None if most_written is None else most_written * 9 // 8 + MIB)
    cutter: Cutter | None = None
    cpu = CpuBound(CPU_SECONDS, CPU_SECONDS_PER_MIB)
    while True:
        try:
            message = link.recv_bytes()
        except (EOFError, OSError):
            return
        cpu.grant(len(message))
        try:
            if cutter is None:
                definition, options = Definition.from_json(job.definition), UploadOptions(**job.options)
                cutter = open_cutter(definition, options, resume=job.resume, spool_dir=job.spool_dir, limits=job.limits)
            for cut in _cuts(cutter, message):
                link.send_bytes(json.dumps(_head(cut, cutter)).encode())
                link.send_bytes(cut.body)
                cpu.grant(len(cut.body))
            answer: dict[str, Any] = {"done": True, **_progress(cutter)}
        except MemoryError:
            answer = _refusal(job, too_much_memory(UploadOptions(**job.options).what, job.memory_bytes))
        except MillraceError as error:
            answer = _refusal(job, error)
        except RecursionError:
            what = UploadOptions(**job.options).what
            answer = _refusal(job, Invalid(f"{what} is nested too deep.", remedy="Write flatter types."))
        link.send_bytes(json.dumps(answer).encode())


def too_much_memory(what: str, most: int) -> TooLarge:
    return TooLarge(
        f"{what} takes more than {most // MIB} MiB to decode.",
        remedy="Write it with smaller pages, blocks and row groups, or as CSV.",
    )


def _cuts(cutter: Cutter, message: bytes) -> Iterator[CutPiece]:
    kind = message[:1]
    if kind == FEED:
        return cutter.feed(message[1:])
    return cutter.finish() if kind == FINISH else cutter.drain()


def _head(cut: CutPiece, cutter: Cutter) -> dict[str, Any]:
    return {
        "cut": [cut.encoding, cut.first_row, cut.first_line, cut.rows],
        "layout": None if cut.layout is None else asdict(cut.layout),
        "oversize": None if cut.oversize is None else asdict(cut.oversize),
        **_progress(cutter),
    }


def _progress(cutter: Cutter) -> dict[str, Any]:
    return {
        "rows": cutter.rows_cut(),
        "repeated_headers": cutter.repeated_headers(),
        "resume": cutter.resume_point(),
    }


def _refusal(job: DecoderJob, error: MillraceError) -> dict[str, Any]:
    kind = getattr(error, "kind", error.code)
    return {"refusal": {"kind": kind, "code": error.code, "message": error.message, "remedy": error.remedy}}
